"""`make cluster`: what its hints name does there what they say, and Ctrl-C leaves nothing behind."""

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.playground import DRIVER_FLEET, NO_AGENTS, own_address
from tests.cluster.playground_process import playground
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS

PLUGIN = Path(sysconfig.get_path("scripts")) / "kubectl-gputopo"


def document_of(kubectl: list[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of the plugin, and its document."""
    answer = subprocess.run([PLUGIN, *words, *kubectl[1:], "-o", "json"], capture_output=True, text=True, check=False)
    return answer.returncode, json.loads(answer.stdout)


def apply(kubectl: list[str], *words: str | Path) -> None:
    """Apply a manifest."""
    subprocess.run([*kubectl, "apply", *words], check=True, stdout=subprocess.DEVNULL)


def is_cordoned(kubectl: list[str]) -> bool:
    """Whether the first GPU of a node takes no pods, for the reason that a person gave."""
    first = document_of(kubectl, "node", "t4")[1]["gpus"][0]
    return first["state"] == "unusable" and "fan is loud" in first["reasons"][0]


def is_running(kubectl: list[str], *pods: str) -> bool:
    """Whether all of these pods run; there must be as many as arguments."""
    phases = [*kubectl, "get", "pods", *pods, "-o", "jsonpath={.items[*].status.phase}"]
    return subprocess.check_output(phases, text=True).split() == ["Running"] * len(pods)


def test_examples_run_in_the_playground(binaries: Path) -> None:
    """All but the one for which nothing is free now; it is told why."""
    with playground(binaries) as kubectl:
        apply(kubectl, "-f", MANIFESTS / "examples")
        waiting = [*kubectl, "get", "pods", "--field-selector=status.phase!=Running", "-o", "name"]
        eventually(lambda: subprocess.check_output(waiting, text=True).split() == ["pod/relax-after"])
        events = subprocess.check_output([*kubectl, "events", "--for", "pod/relax-after"], text=True)
        assert "no 8 free GPUs share an NVLink ring" in events
        settings = yaml.safe_load((Path(kubectl[-1]).parent / "extender-0.yaml").read_text())
        assert settings["agents"]["silence"] == NO_AGENTS, "nodes without agents close while somebody looks at them"


def test_what_the_plugin_shows_and_changes_in_the_playground_is_true(binaries: Path) -> None:
    """The first status finds nothing wrong; a gang, a Job and a pod with a claim start; GPUs are cordoned and in use."""
    gang = MANIFESTS / "workloads" / "gang.yaml"
    with playground(binaries) as kubectl:
        assert document_of(kubectl, "status")[1]["findings"] == []
        apply(kubectl, "-f", gang, "-l", "member=0")
        eventually(lambda: [row["reason"] for row in document_of(kubectl, "queue")[1]["rows"]] == ["incomplete"])
        apply(kubectl, "-f", gang)
        eventually(lambda: is_running(kubectl, "gang-0", "gang-1"))
        apply(kubectl, "-f", MANIFESTS / "workloads" / "all-reduce.yaml")
        eventually(lambda: is_running(kubectl, "--selector=batch.kubernetes.io/job-name=all-reduce"))
        subprocess.run([PLUGIN, "cordon-gpu", "t4", "0", "--why", "fan is loud", *kubectl[1:]], check=True)
        eventually(lambda: is_cordoned(kubectl))
        claim = subprocess.check_output([PLUGIN, "claim", "--gpus", "2"])
        subprocess.run([*kubectl, "apply", "-f", "-"], input=claim, check=True, stdout=subprocess.DEVNULL)
        eventually(lambda: is_running(kubectl, "--field-selector=metadata.name=gpus"))
        (row,) = document_of(kubectl, "claims")[1]["claims"]
        assert (row["state"], row["node"], row["pods"]) == ("reserved", DRIVER_FLEET[0].name, ["gpus"])
        if not own_address():
            pytest.skip("this machine has no address but loopback, to which an API server forwards nothing")
        code, usage = document_of(kubectl, "top", "--idle")
        assert (code, usage["unheard"]) == (0, {})
        assert {"h100-b", "v100-c"} <= {gpu["node"] for gpu in usage["gpus"]}
