"""`kubectl gputopo cleanup` shows all that is left of gputopo, and removes that and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.kubectl import cleanup
from extender.kubernetes.kubeconfig import Kubeconfig
from tests.extender.plugin import PODS, invoke
from topology.annotations import keys

MERGE = "application/merge-patch+json"
ELSEWHERE = {keys.MOVES, keys.CLAIM_POD}
"""On a Lease of the installation, and on ResourceClaims: `cleanup` reads neither."""
OURS = {
    value for name, value in vars(keys).items() if str(value).startswith(cleanup.PREFIXES) and "PREFIX" not in name
} - ELSEWHERE
KEPT = {keys.REQUIRED_AFFINITY: "nvlink", "example.com/note": "mine"}


@dataclass
class Cluster:
    """A cluster after gputopo: every annotation of ours is somewhere."""

    api: ApiClient
    kubeconfig: Path

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(invoke, "cleanup", *arguments, "--kubeconfig", str(self.kubeconfig))

    async def annotations(self) -> dict[str, dict[str, str]]:
        """Return what is annotated where."""
        found: dict[str, Any] = {}
        for resource in ("nodes", "pods"):
            for item in (await self.api.call("GET", f"/api/v1/{resource}")).ok()["items"]:
                found[item["metadata"]["name"]] = item["metadata"].get("annotations") or {}
        return found

    async def annotate(self, path: str, annotations: dict[str, str] | None) -> None:
        body = {"metadata": {"annotations": annotations}}
        (await self.api.call("PATCH", f"/api/v1/{path}", body, content_type=MERGE)).ok()


@asynccontextmanager
async def left_behind(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Have a node with two pods, one of which gputopo never saw."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        cluster = Cluster(api, tmp_path / "kubeconfig")
        (await api.call("POST", PODS, gpu_pod("train", 1, KEPT))).ok()
        (await api.call("POST", PODS, gpu_pod("other", 1, KEPT))).ok()
        on_pods = {keys.PLACEMENT, keys.FENCE, keys.PLANNED, keys.NOMINATED}
        await cluster.annotate("namespaces/default/pods/train", dict.fromkeys(on_pods, "x"))
        await cluster.annotate("nodes/n1", dict.fromkeys(OURS - on_pods, "x") | {"topo.gputopo.dev/of-old": "x"} | KEPT)
        write_kubeconfig(cluster.kubeconfig, server.url)
        yield cluster


async def test_all_that_is_ours_is_shown_and_nothing_removed_unasked(tmp_path: Path) -> None:
    """The report of the agent and the question for a look, too, and keys that an older version wrote; exit code 1."""
    async with left_behind(tmp_path) as cluster:
        before = await cluster.annotations()
        shown = await cluster.run()
        assert await cluster.annotations() == before
    assert shown.exit_code == 1
    assert shown.stderr == "this is left of gputopo; with --yes it is removed\n"
    head, n1, train = (line.split() for line in shown.stdout.splitlines())
    assert head == ["KIND", "NAMESPACE", "NAME", "ANNOTATIONS", "CONDITIONS", "GATES"]
    assert (n1[:3], train[:3]) == (["node", "<none>", "n1"], ["pod", "default", "train"])
    assert {*n1[3].split(","), *train[3].split(",")} == OURS | {"topo.gputopo.dev/of-old"}


async def test_what_is_left_is_a_document_or_names_as_of_other_verbs(tmp_path: Path) -> None:
    """With nothing else on standard output, also where it is removed."""
    async with left_behind(tmp_path) as cluster:
        names = await cluster.run("-o", "name")
        removed = await cluster.run("-o", "json", "--yes")
        none = await cluster.run("-o", "json")
    assert names.stdout.split() == ["node/n1", "pod/train"]
    n1, train = json.loads(removed.stdout)["leftovers"]
    assert {*n1["annotations"], *train["annotations"]} == OURS | {"topo.gputopo.dev/of-old"}
    assert (removed.exit_code, removed.stderr) == (0, "removed from 2 nodes and pods\n")
    assert (none.exit_code, json.loads(none.stdout)) == (0, {"leftovers": []})


async def test_with_yes_it_goes_and_the_rest_stays(tmp_path: Path) -> None:
    """What users wrote is theirs; a second run finds nothing."""
    async with left_behind(tmp_path) as cluster:
        removed = await cluster.run("--yes")
        after, again = await cluster.annotations(), await cluster.run("--yes")
    assert (removed.exit_code, removed.stderr) == (0, "")
    assert removed.stdout.splitlines()[-1] == "removed from 2 nodes and pods"
    assert all(found == KEPT for found in after.values())
    assert (again.exit_code, again.stdout) == (0, "nothing of gputopo is left on nodes and pods\n")


async def test_nothing_is_removed_while_gputopo_runs(tmp_path: Path) -> None:
    """A node that lost its ledger would be closed, and written to again."""
    async with left_behind(tmp_path) as cluster:
        agent = gpu_pod("agent-x", 0, {})
        agent["metadata"]["labels"] = dict([cleanup.OURS])
        (await cluster.api.call("POST", PODS, agent)).ok()
        before = await cluster.annotations()
        refused = await cluster.run("--yes")
        assert await cluster.annotations() == before
    assert refused.exit_code == 1
    hint = "; if these are not gputopo's, say with -n in which namespace it was"
    assert refused.stderr == f"nothing is removed while gputopo runs: default/agent-x{hint}\n"


async def test_a_pod_of_ours_that_has_ended_is_in_nobodys_way(tmp_path: Path) -> None:
    """That of `helm test` stays when the release is uninstalled."""
    async with left_behind(tmp_path) as cluster:
        check = gpu_pod("gputopo-test", 0, {})
        check["metadata"]["labels"] = dict([cleanup.OURS])
        (await cluster.api.call("POST", PODS, check)).ok()
        ended = {"status": {"phase": "Succeeded"}}
        (await cluster.api.call("PATCH", f"{PODS}/gputopo-test/status", ended, content_type=MERGE)).ok()
        removed = await cluster.run("--yes")
    assert (removed.exit_code, removed.stderr) == (0, "")


@pytest.mark.slow
async def test_a_label_in_a_foreign_namespace_is_in_nobodys_way(tmp_path: Path) -> None:
    """Who says where gputopo was is refused for pods there only: anybody may give a pod of theirs our label."""
    async with left_behind(tmp_path) as cluster:
        stranger = gpu_pod("stranger", 0, {})
        stranger["metadata"]["labels"] = dict([cleanup.OURS])
        (await cluster.api.call("POST", PODS, stranger)).ok()
        refused = await cluster.run("--yes", "-n", "default")
        kept = await cluster.annotations()
        removed = await cluster.run("--yes", "-n", "gputopo-system")
        after = await cluster.annotations()
    assert (refused.exit_code, removed.exit_code) == (1, 0)
    assert refused.stderr == "nothing is removed while gputopo runs: default/stranger\n"
    assert kept["n1"].keys() > KEPT.keys() and after["n1"] == KEPT


async def test_a_namesake_keeps_what_it_has(tmp_path: Path) -> None:
    """A pod that was made anew since it was looked at is another one; the failure has a reason."""
    async with left_behind(tmp_path) as cluster:
        config = Kubeconfig.find(cluster.kubeconfig, None, {})
        found = await cleanup.find(config)
        (await cluster.api.call("DELETE", f"{PODS}/train", {"gracePeriodSeconds": 0})).ok()
        (await cluster.api.call("POST", PODS, gpu_pod("train", 1, {keys.FENCE: "new"}))).ok()
        failed = await cleanup.remove(config, found.leftovers)
        after = await cluster.annotations()
    assert {leftover.name: reason.split(":")[0] for leftover, reason in failed.items()} == {"train": "422"}
    assert after["train"] == {keys.FENCE: "new"}
    assert after["n1"] == KEPT


async def test_what_is_gone_meanwhile_is_no_failure(tmp_path: Path) -> None:
    """The rest is cleaned."""
    async with left_behind(tmp_path) as cluster:
        config = Kubeconfig.find(cluster.kubeconfig, None, {})
        found = await cleanup.find(config)
        (await cluster.api.call("DELETE", f"{PODS}/train", {"gracePeriodSeconds": 0})).ok()
        assert await cleanup.remove(config, found.leftovers) == {}
        assert (await cluster.annotations())["n1"] == KEPT


async def test_conditions_of_ours_are_shown(tmp_path: Path) -> None:
    """Also where nothing else is left; `tests/cluster/test_plugin.py` sees them go."""
    async with left_behind(tmp_path) as cluster:
        await join(cluster.api, [SimulatedNode("n2", "t4-4")])
        await cluster.annotate("nodes/n2", None)
        (await cluster.api.call("POST", PODS, gpu_pod("waited", 1))).ok()
        ours = {"nodes/n2": keys.GPUS_HEALTHY, "namespaces/default/pods/waited": keys.PLANNED_CONDITION}
        for path, kind in ours.items():
            status = {"status": {"conditions": [{"type": "Ready"}, {"type": kind, "status": "False"}]}}
            (await cluster.api.call("PATCH", f"/api/v1/{path}/status", status, content_type=MERGE)).ok()
        rows = [line.split() for line in (await cluster.run()).stdout.splitlines()]
    assert ["node", "<none>", "n2", "<none>", keys.GPUS_HEALTHY, "<none>"] in rows
    assert ["pod", "default", "waited", "<none>", keys.PLANNED_CONDITION, "<none>"] in rows


def test_no_cluster_is_2(tmp_path: Path) -> None:
    """As with every verb."""
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    result = invoke("cleanup", "--yes", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("cannot read the cluster: ")
