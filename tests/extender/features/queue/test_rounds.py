"""The rounds of an extender with a queue, on real sockets against the API double: a scheduler that only binds is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated.double.resources import EVENTS
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from extender.features.queue.events import QUEUED
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from topology.annotations import keys

PODS = "/api/v1/namespaces/default/pods"
NODES = tuple(SimulatedNode(f"n{number}", "rtx-3090-2") for number in range(3))
QUEUE = {"queue.enabled": "true", "agents.namespace": "default"}
OTHER_GATE = "kueue.x-k8s.io/admission"

pytestmark = pytest.mark.slow


async def create(extender: Running, name: str, gpus: int, *gates: str, **annotations: str) -> None:
    body = gpu_pod(name, gpus, annotations, schedulingGates=[{"name": gate} for gate in (*gates, keys.PLAN_GATE)])
    (await extender.api.call("POST", PODS, body)).ok()


async def create_gang(extender: Running, pods: int, name: str = "g") -> None:
    said = {keys.GROUP: name, keys.GROUP_SIZE: str(pods), keys.GANG: "required"}
    for number in range(pods):
        await create(extender, f"{name}{number}", 2, **said)


async def find(extender: Running, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = (await extender.api.call("GET", f"{PODS}/{name}")).ok()
    return pod


async def directed(extender: Running) -> dict[str, str]:
    """Return the node of each pod whose gate is open and that a node was named to."""
    items = (await extender.api.call("GET", PODS)).ok()["items"]
    return {
        item["metadata"]["name"]: (item["metadata"].get("annotations") or {}).get(keys.PLANNED, "")
        for item in items
        if not item["spec"].get("schedulingGates")
    }


async def bind(extender: Running, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    assert (await extender.api.call("POST", f"{PODS}/{name}/binding", body)).code == 201


async def test_a_gang_is_opened_whole_each_pod_on_a_node_of_its_own(tmp_path: Path) -> None:
    """Pinned there, which a nomination would add nothing to; once bound it has been served."""
    async with serving(tmp_path, *NODES, settings=QUEUE) as extender:
        await create_gang(extender, 3)

        async def all_are() -> dict[str, str]:
            where = await directed(extender)
            return where if len(where) == 3 else {}

        where = await eventually(all_are)
        assert sorted(where.values()) == ["n0", "n1", "n2"]
        for name, node in where.items():
            pod = await find(extender, name)
            assert "nominatedNodeName" not in pod["status"]
            assert "requiredDuringSchedulingIgnoredDuringExecution" in pod["spec"]["affinity"]["nodeAffinity"]
            await bind(extender, name, node)

        async def all_are_served() -> bool:
            return 'gputopo_queue_pods_total{outcome="served"} 3.0' in (await extender.get("/metrics"))[1]

        assert await eventually(all_are_served)
        assert "gputopo_queue_gangs_total 1.0" in (await extender.get("/metrics"))[1]


async def test_no_gate_of_a_gang_that_does_not_fit_is_opened(tmp_path: Path) -> None:
    """A single pod behind it finds no room on GPUs that are kept; one with room elsewhere is opened."""
    async with serving(tmp_path, *NODES, settings=QUEUE) as extender:
        await create_gang(extender, 4)
        await create(extender, "single", 2)

        async def single_is() -> dict[str, str]:
            return await directed(extender)

        assert (await eventually(single_is)).keys() == {"single"}

        async def why_is_shown() -> bool:
            page = (await extender.get("/metrics"))[1]
            return 'gputopo_queue_waiting_pods{reason="no-room"} 4.0' in page

        assert await eventually(why_is_shown)


async def test_what_waits_is_reported_with_its_reason_and_place(tmp_path: Path) -> None:
    """As a list, in `why`, on the pod's page, in an event and in metrics; a pod without our gate is not spoken of."""
    async with serving(tmp_path, *NODES, settings=QUEUE) as extender:
        await create_gang(extender, 4)
        await extender.create("plain", 2)

        async def rows() -> list[Any]:
            listed = json.loads((await extender.get("/v1/inspect/queue"))[1])["rows"]
            return listed if [row["reason"] for row in listed] == ["no-room"] else []

        [row] = await eventually(rows)
        assert (row["place"], row["kind"], row["name"], row["pods"], row["gpus"]) == (1, "gang", "g", 4, 8)
        line = "in gputopo&#39;s queue, place 1: there is no room for it now"
        assert line in (await extender.get("/pods/default/g0"))[1]
        notes = json.loads((await extender.get("/v1/inspect/pods/default/g0/why"))[1])["notes"]
        assert notes == [{"feature": "queue", "line": line.replace("&#39;", "'"), "is_problem": False}]

        async def events() -> set[str]:
            told = [event for event in extender.store.list(EVENTS).items if event["reason"] == QUEUED]
            messages = [event["message"] for event in told]
            return set(messages) if len(messages) >= 4 else set()

        assert "waits in gputopo's queue, place 1: there is no room for it now" in await eventually(events)
        assert "notes" not in json.loads((await extender.get("/v1/inspect/pods/default/plain/why"))[1])

        async def condition() -> list[Any]:
            conditions = (await find(extender, "g0"))["status"].get("conditions", [])
            return [item for item in conditions if item["type"] == keys.PLANNED_CONDITION]

        [said] = await eventually(condition)
        assert said["status"] == "False"
        assert said["reason"] in {"Incomplete", "NoRoom"}, "the first plan may have seen half of the gang"

        async def metrics() -> str:
            page = (await extender.get("/metrics"))[1]
            return page if 'gputopo_queue_namespace_pods{pod_namespace="default"} 4.0' in page else ""

        page = await eventually(metrics)
        assert "gputopo_pods_gated 4.0" in page
        assert "gputopo_queue_silence_seconds" in page and "gputopo_queue_longest_wait_seconds" in page


async def test_gates_of_others_come_first(tmp_path: Path) -> None:
    """The pod is planned when they have gone, and ours is the only one that we remove."""
    async with serving(tmp_path, *NODES, settings=QUEUE) as extender:
        await create(extender, "held", 2, OTHER_GATE)
        await create(extender, "free", 2)

        async def some_are() -> dict[str, str]:
            return await directed(extender)

        assert (await eventually(some_are)).keys() == {"free"}
        body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": OTHER_GATE}]}}
        kind = "application/strategic-merge-patch+json"
        (await extender.api.call("PATCH", f"{PODS}/held", body, content_type=kind)).ok()

        async def both_are() -> bool:
            return len(await directed(extender)) == 2

        assert await eventually(both_are)


async def test_an_extender_without_the_queue_leaves_gates_alone(tmp_path: Path) -> None:
    """It is off unless somebody switches it on."""
    async with serving(tmp_path, *NODES) as extender:
        await create(extender, "waits", 2)
        await extender.create("plain", 2)

        async def plain_is_known() -> bool:
            return "plain" in (await extender.get("/v1/inspect/pods"))[1]

        await eventually(plain_is_known)
        assert await directed(extender) == {"plain": ""}
        assert json.loads((await extender.get("/v1/inspect/queue"))[1])["is_served"] is False

        async def waits_is_counted() -> str:
            page = (await extender.get("/metrics"))[1]
            return page if "gputopo_pods_gated 1.0" in page else ""

        page = await eventually(waits_is_counted)
        assert "gputopo_queue_silence_seconds " not in page
