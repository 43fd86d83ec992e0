"""The workloads do what their comments say, as far as that shows without a GPU."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.helm import MANIFESTS
from topology.annotations import keys
from topology.node.links import Affinity
from topology.request.domains import GroupRequest, Level
from topology.request.gpu_request import Communication, PodRequest, parse_pod

FOLDER = MANIFESTS / "workloads"
FILES = sorted(FOLDER.glob("*.yaml"))
GPUS = {"first-pod": 2, "all-reduce": 4, "two-nodes": 8, "replicas": 1, "notebook": 1, "gang": 4}


def objects(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


def pod(name: str) -> dict[str, Any]:
    """Return the pod that a file is, or makes."""
    made = objects(name)[-1]
    found: dict[str, Any] = made if made["kind"] == "Pod" else {"metadata": {"name": name}} | made["spec"]["template"]
    return found


def request(name: str) -> PodRequest:
    return parse_pod(pod(name))


def scripts(name: str) -> list[str]:
    """Return the Python that its container runs."""
    container = pod(name)["spec"]["containers"][0]
    text, command = "".join(container.get("args", ())), container.get("command", [""])[0]
    return re.findall(r"<<'PY'\n(.*?)\nPY\n", text, re.DOTALL) or ([text] if command == "python" else [])


def test_each_file_is_known_here() -> None:
    """A new one needs a line that says how many GPUs each of its pods has."""
    assert {file.stem for file in FILES} == set(GPUS)


@pytest.mark.parametrize("name", GPUS)
def test_workload_opts_in_and_says_what_it_is(name: str) -> None:
    """It is named like its file, names our scheduler, begins with a comment, and does something."""
    assert (FOLDER / f"{name}.yaml").read_text().startswith("# ")
    assert {re.sub(r"-\d$", "", each["metadata"]["name"]) for each in objects(name)} == {name}
    spec = pod(name)["spec"]
    assert spec["schedulerName"] == "gputopo"
    assert request(name).request.gpus == GPUS[name]
    assert not any("pause" in container["image"] or ":latest" in container["image"] for container in spec["containers"])


@pytest.mark.parametrize(("name", "count"), [("all-reduce", 1), ("two-nodes", 1), ("replicas", 1), ("notebook", 0)])
def test_what_it_runs_is_python(name: str, count: int) -> None:
    """As far as the compiler can tell."""
    assert len([ast.parse(script) for script in scripts(name)]) == count


def test_the_measuring_job_reads_its_own_prediction() -> None:
    """From the annotation that comes with its Binding."""
    (variable,) = pod("all-reduce")["spec"]["containers"][0]["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{keys.PLACEMENT}']"
    assert request("all-reduce").request.required is Affinity.NVLINK


def test_the_pods_of_the_training_job_are_one_group() -> None:
    """As many as it has, by a name that the Service gives them."""
    service, job = objects("two-nodes")
    assert request("two-nodes").group == GroupRequest("two-nodes", job["spec"]["completions"], Level.RACK)
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod("two-nodes")["spec"]["subdomain"] == service["metadata"]["name"]
    assert "two-nodes-0.two-nodes:29400" in (FOLDER / "two-nodes.yaml").read_text()


def test_replicas_leave_the_links_to_others() -> None:
    """They never talk to each other."""
    assert request("replicas").request.communication is Communication.NONE


def test_readme_of_the_docs_names_them_all() -> None:
    """Each with what it does."""
    page = (Path(MANIFESTS).parent / "docs/how-to/request-nvlink.md").read_text()
    assert [name for name in GPUS if f"`{name}.yaml`" not in page] == []
