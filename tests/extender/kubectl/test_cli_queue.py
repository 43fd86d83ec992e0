"""`kubectl gputopo queue` shows who waits behind our scheduling gate, and opens it where nobody plans."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from tests.extender.plugin import BEGAN, invoke
from tests.extender.serving import served
from topology.annotations import keys

OTHER_GATE = "kueue.x-k8s.io/admission"
GANG = {keys.GROUP: "train", keys.GROUP_SIZE: "2", keys.GANG: "required"}


@dataclass
class Cluster:
    """A node with two GPUs, and pods behind gates."""

    api: ApiClient
    kubeconfig: Path

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(invoke, *arguments, "--kubeconfig", str(self.kubeconfig))

    async def gates(self) -> dict[str, list[str]]:
        """Return the gates of all pods."""
        pods: list[Any] = (await self.api.call("GET", "/api/v1/pods")).ok()["items"]
        return {
            pod["metadata"]["name"]: [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()] for pod in pods
        }


@asynccontextmanager
async def queue(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Let a gang of two wait, a pod that Kueue holds, and one in another namespace; one pod has no gate of ours."""
    async with ApiServer(ObjectStore(now=lambda: BEGAN)) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "rtx-3090-2")])
        (await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "ml"}})).ok()
        for namespace, name, annotations, gates in (
            ("default", "train-0", GANG, [keys.PLAN_GATE]),
            ("default", "train-1", GANG, [keys.PLAN_GATE]),
            ("default", "held", {}, [OTHER_GATE, keys.PLAN_GATE]),
            ("default", "kueue", {}, [OTHER_GATE]),
            ("ml", "single", {}, [keys.PLAN_GATE]),
        ):
            body = gpu_pod(
                name, 2, annotations, schedulerName="gputopo", schedulingGates=[{"name": gate} for gate in gates]
            )
            (await api.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        yield Cluster(api, tmp_path / "kubeconfig")


async def test_the_queue_is_shown_in_its_order(tmp_path: Path) -> None:
    """A gang has one row; what is worked out here is called an estimate, and exits with 0."""
    async with queue(tmp_path) as cluster:
        result = await cluster.run("queue")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == [
        "PLACE",
        "NAMESPACE",
        "NAME",
        "PODS",
        "GPUS",
        "PRIORITY",
        "SINCE",
        "REASON",
        "KEPT-GPUS",
        "START",
    ]
    assert [(row[0], row[2], row[7]) for row in rows[1:]] == [
        ("1", "pod/single", "planned"),
        ("2", "gang/train", "no-room"),
        ("<none>", "pod/held", "other-gates"),
    ]
    assert result.stderr.startswith("an estimate, no extender was asked")


async def test_a_namespace_is_shown_alone_and_as_a_document(tmp_path: Path) -> None:
    """Places are those in the whole queue."""
    async with queue(tmp_path) as cluster:
        result = await cluster.run("queue", "-n", "ml", "-o", "json")
    report = json.loads(result.stdout)
    assert report["is_served"] is None
    assert [(row["place"], row["namespace"], row["name"], row["gpus"]) for row in report["rows"]] == [
        (1, "ml", "single", 2)
    ]


async def test_our_gate_is_removed_from_pods_that_are_named(tmp_path: Path) -> None:
    """Gates of others stay, and so do all other pods."""
    async with queue(tmp_path) as cluster:
        before = await cluster.gates()
        result = await cluster.run("queue", "open", "held", "train-0")
        after = await cluster.gates()
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(result.stdout.splitlines()) == ["default/held: opened", "default/train-0: opened"]
    assert after == before | {"held": [OTHER_GATE], "train-0": []}


@pytest.mark.slow
async def test_all_opens_those_of_a_namespace_or_of_the_cluster(tmp_path: Path) -> None:
    """A pod without our gate is not touched."""
    async with queue(tmp_path) as cluster:
        before = await cluster.gates()
        await cluster.run("queue", "open", "--all", "-n", "ml")
        in_ml = await cluster.gates()
        await cluster.run("queue", "open", "--all")
        everywhere = await cluster.gates()
        again = await cluster.run("queue", "open", "--all")
    assert in_ml == before | {"single": []}
    assert everywhere == {"train-0": [], "train-1": [], "held": [OTHER_GATE], "kueue": [OTHER_GATE], "single": []}
    assert (again.exit_code, again.stdout) == (0, "no pod waits in the queue\n")


@pytest.mark.slow
async def test_a_pod_that_is_not_in_the_queue_is_a_clear_no(tmp_path: Path) -> None:
    """It is another namespace's, or has no gate of ours."""
    async with queue(tmp_path) as cluster:
        result = await cluster.run("queue", "open", "single", "kueue")
        wrong = [
            await cluster.run("queue", *words) for words in (("open",), ("open", "held", "--all"), ("--all",), ("x",))
        ]
    assert (result.exit_code, result.stderr) == (1, "not in the queue: default/kueue, default/single\n")
    assert [each.exit_code for each in wrong] == [2, 2, 2, 2]


async def test_cleanup_opens_all(tmp_path: Path) -> None:
    """It is what is left of gputopo on pods that nobody will plan."""
    async with queue(tmp_path) as cluster:
        shown = await cluster.run("cleanup")
        removed = await cluster.run("cleanup", "--yes")
        gates = await cluster.gates()
    assert "pod    ml          single    <none>" in shown.stdout and keys.PLAN_GATE in shown.stdout
    assert (removed.exit_code, removed.stderr) == (0, "")
    assert gates == {"train-0": [], "train-1": [], "held": [OTHER_GATE], "kueue": [OTHER_GATE], "single": []}


@pytest.mark.slow
async def test_an_extender_without_the_queue_is_a_no(tmp_path: Path) -> None:
    """By `queue` and by `why`, with what to do about it; a pod that others hold is not our business."""
    async with queue(tmp_path) as cluster, served(cluster.kubeconfig) as extender:
        listed = await cluster.run("queue", "--extender", extender.url)
        explained = await cluster.run("why", "train-0", "--extender", extender.url)
        of_others = await cluster.run("why", "kueue", "--extender", extender.url)
    assert listed.exit_code == explained.exit_code == 1
    assert listed.stderr == "nobody plans these pods: the extender runs without `queue.enabled`\n"
    assert "no-planner" in listed.stdout
    assert f"nobody serves its scheduling gate {keys.PLAN_GATE}" in explained.stdout
    assert of_others.exit_code == 0 and "queue" not in of_others.stdout


async def test_why_says_place_and_reason(tmp_path: Path) -> None:
    """Without an extender, too: it is what a planner would say now."""
    async with queue(tmp_path) as cluster:
        result = await cluster.run("why", "train-1")
    assert "in gputopo's queue, place 2: there is no room for it now" in result.stdout


@pytest.mark.slow
async def test_why_warns_of_a_deadline_of_the_job_that_is_near(tmp_path: Path) -> None:
    """The time passes while the pod waits; a deadline that is far is not spoken of."""
    async with queue(tmp_path) as cluster:
        for name, seconds in (("near", 600), ("far", 90_000)):
            spec, status = {"activeDeadlineSeconds": seconds}, {"startTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
            job = {"metadata": {"name": name}, "spec": spec, "status": status}
            (await cluster.api.call("POST", "/apis/batch/v1/namespaces/default/jobs", job)).ok()
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
            body = gpu_pod(name, 2, {}, schedulerName="gputopo", schedulingGates=[{"name": keys.PLAN_GATE}])
            body["metadata"]["ownerReferences"] = [owner]
            (await cluster.api.call("POST", "/api/v1/namespaces/default/pods", body)).ok()
        shown = {name: (await cluster.run("why", name)).stdout for name in ("near", "far", "train-0")}
    deadline = "activeDeadlineSeconds passes while pods wait"
    assert {name: deadline in text for name, text in shown.items()} == {"near": True, "far": False, "train-0": False}
