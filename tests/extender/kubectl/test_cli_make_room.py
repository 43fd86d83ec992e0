"""`kubectl gputopo make-room` shows who would move for a pod that waits, and moves nobody."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
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
from extender.features.moves.proposal import MoveProposal, ProposedMove
from extender.kubectl import make_room
from extender.kubectl.form import Form
from tests.extender.plugin import BEGAN, invoke
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, encode_placement
from topology.formats.catalog import machine

MACHINE = "a100-pcie-8-pairs"
LABELS = {"app": "serve"}


@dataclass
class Cluster:
    """Two nodes of which every pair of GPUs is broken, and a pod that requires a linked pair."""

    api: ApiClient
    kubeconfig: Path

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(invoke, "make-room", *arguments, "--kubeconfig", str(self.kubeconfig))

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return dict((await self.api.call("POST", path, body)).ok())


@asynccontextmanager
async def fragmented(
    tmp_path: Path, *, movable: bool = True, job: dict[str, Any] | None = None
) -> AsyncIterator[Cluster]:
    async with ApiServer(ObjectStore(now=lambda: BEGAN)) as server, ApiClient(server.url) as api:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        built = Cluster(api, tmp_path / "kubeconfig")
        await join(api, [SimulatedNode(name, MACHINE) for name in "ab"])
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "s", "uid": "u", "controller": True}
        if job is not None:
            created = await built.create(
                "/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "s"}, "spec": job}
            )
            owner |= {"apiVersion": "batch/v1", "kind": "Job", "uid": created["metadata"]["uid"]}
        for node in "ab":
            for pair in range(4):
                gpu = machine(MACHINE, host=node).gpus[2 * pair].uuid
                annotations = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": (gpu,)}))}
                if movable and (node, pair) == ("a", 1):
                    annotations |= {keys.MOVABLE: "true", keys.RESTART_COST: "90s"}
                pod = gpu_pod(f"{node}{pair}", 1, annotations, nodeName=node, schedulerName="gputopo")
                pod["metadata"] |= {"labels": LABELS, "ownerReferences": [owner]}
                await built.create("/api/v1/namespaces/default/pods", pod)
        waits = gpu_pod("waits", 2, {keys.REQUIRED_AFFINITY: "nvlink"}, schedulerName="gputopo")
        await built.create("/api/v1/namespaces/default/pods", waits)
        yield built


@pytest.mark.slow
async def test_the_moves_are_shown_with_their_cost_and_nothing_is_written(tmp_path: Path) -> None:
    """All objects are as before."""
    async with fragmented(tmp_path) as cluster:
        before = (await cluster.api.call("GET", "/api/v1/pods")).ok()
        shown = await cluster.run("waits")
        assert shown.exit_code == 0, shown.output
        assert "default/waits: would fit on a, GPUs 2, 3" in shown.output
        assert "default/a1" in shown.output
        assert "gain at most 120 GPU-minutes" in shown.output
        proposal = json.loads((await cluster.run("waits", "-o", "json")).stdout)
        assert [move["name"] for move in proposal["moves"]] == ["a1"]
        assert (await cluster.api.call("GET", "/api/v1/pods")).ok() == before


@pytest.mark.slow
async def test_the_nodes_of_a_gang_are_shown_with_how_many_of_its_pods_they_get(tmp_path: Path) -> None:
    """One of its two pods needs the linked pair for which a pod moves."""
    async with fragmented(tmp_path) as cluster:
        gang = {keys.GROUP: "g", keys.GROUP_SIZE: "2", keys.GANG: "required"}
        for name, count, annotations in (("g0", 2, gang | {keys.REQUIRED_AFFINITY: "nvlink"}), ("g1", 1, gang)):
            pod = gpu_pod(name, count, annotations, schedulerName="gputopo", schedulingGates=[{"name": keys.PLAN_GATE}])
            await cluster.create("/api/v1/namespaces/default/pods", pod)
        shown = await cluster.run("g1")
        proposal = json.loads((await cluster.run("g1", "-o", "json")).stdout)
        places = {place["name"]: place["node"] for place in proposal["gang"]}
        nodes = ", ".join(f"{node} ({count})" for node, count in sorted(Counter(places.values()).items()))
        assert places.keys() == {"g0", "g1"} and places["g0"] == "a"
        assert f"default/g1: would fit on {nodes} with 2 pods of its gang, if these pods moved" in shown.output


def test_parts_of_gpus_stand_where_the_numbers_of_gpus_do(capsys: pytest.CaptureFixture[str]) -> None:
    """A share has its GiB, for the waiting pod and for the one that moves."""
    part, to_part = "10 GiB of GPU 3", "1g.10gb of GPU 4"
    move = ProposedMove(
        namespace="ml",
        name="serve",
        node="a",
        gpus=(3,),
        part=part,
        to_node="b",
        to_gpus=(4,),
        to_part=to_part,
        cost_gpu_seconds=36.0,
    )
    where = {"node": "a", "gpus": (1,), "part": "30 GiB of GPU 1"}
    make_room._print(MoveProposal(namespace="ml", name="w", **where, moves=(move,)), Form())
    shown = capsys.readouterr().out
    assert "would fit on a, 30 GiB of GPU 1, if these pods moved" in shown
    assert all(word in shown for word in (part, to_part, "0.6 GPU-minutes"))


async def test_a_budget_that_allows_no_eviction_keeps_the_pod_where_it_is(tmp_path: Path) -> None:
    """Then there is no plan, the exit code is 1, and the reason is counted."""
    async with fragmented(tmp_path) as cluster:
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": LABELS}},
            "status": {"disruptionsAllowed": 0},
        }
        await cluster.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        shown = await cluster.run("waits")
        assert shown.exit_code == 1
        assert "1 movable pods stay: a PodDisruptionBudget that allows no eviction" in shown.output


@pytest.mark.slow
@pytest.mark.parametrize("ignores", [True, False])
async def test_the_jobs_of_pods_are_read(tmp_path: Path, ignores: bool) -> None:
    """A pod moves if its Job ignores evictions."""
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    async with fragmented(tmp_path, job={"podFailurePolicy": {"rules": [rule]}} if ignores else {}) as cluster:
        shown = await cluster.run("waits")
        expected = "would fit on a, GPUs 2, 3" if ignores else "stay: a Job that counts an eviction as a failure"
        assert (expected in shown.output, shown.exit_code) == (True, 0 if ignores else 1)


@pytest.mark.slow
async def test_the_configuration_of_the_extender_names_pods_that_may_move(tmp_path: Path) -> None:
    """A file that cannot be used is an error."""
    async with fragmented(tmp_path, movable=False) as cluster:
        file = tmp_path / "extender.yaml"
        file.write_text("moves: {movable: {namespaces: [def*], ownerKinds: [ReplicaSet]}}")
        assert "would fit on a" in (await cluster.run("waits", "--config", str(file))).output
        file.write_text("moves: {movable: [default]}")
        wrong = await cluster.run("waits", "--config", str(file))
        assert (wrong.exit_code, "extender.yaml" in wrong.output) == (2, True)


@pytest.mark.slow
async def test_without_movable_pods_there_is_no_plan(tmp_path: Path) -> None:
    """A pod that does not exist and a wait that is no duration are errors."""
    async with fragmented(tmp_path, movable=False) as cluster:
        shown = await cluster.run("waits")
        assert (shown.exit_code, "no plan: 0 pods may move" in shown.output) == (1, True)
        assert (await cluster.run("wait")).exit_code == 1
        wrong = await cluster.run("waits", "--wait", "soon")
        assert (wrong.exit_code, "--wait" in wrong.output) == (2, True)
