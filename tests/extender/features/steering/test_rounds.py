"""The rounds of an extender that steers, on real sockets: a queue has to stand, and kube-scheduler has to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.processes.client import MERGE_PATCH
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from topology.annotations import keys
from topology.annotations.records import decode_placement

PODS = "/api/v1/namespaces/default/pods"
NODES = tuple(SimulatedNode(f"n{number}", "l40s-8") for number in range(3))
STEERED = {
    "steering.enabled": "true",
    "steering.queue": "4",
    "steering.nodes": "3",
    "steering.life": "1s",
}
SOME_ROUNDS_SECONDS = 0.3

pytestmark = pytest.mark.slow


async def nominated(extender: Running) -> dict[str, str]:
    items = (await extender.api.call("GET", PODS)).ok()["items"]
    return {each["metadata"]["name"]: node for each in items if (node := each["status"].get("nominatedNodeName"))}


async def ask(extender: Running) -> None:
    asked = gpu_pod("asked", 0) | {"metadata": {"name": "asked", "namespace": "default", "uid": "asked"}}
    assert (await extender.post("filter", {"Pod": asked, "NodeNames": [node.name for node in NODES]}))[0] == 200


async def queue(extender: Running, pods: int, gpus: int = 2) -> None:
    for number in range(pods):
        await extender.create(f"p{number}", gpus)


@pytest.mark.parametrize(
    ("pods", "is_asked", "settings"),
    [
        (3, True, STEERED),
        (4, True, STEERED | {"steering.nodes": "4"}),
        (4, False, STEERED),
        (4, True, STEERED | {"steering.enabled": "false"}),
    ],
    ids=["short", "few-nodes", "standby", "off"],
)
async def test_nobody_is_nominated_without_a_reason(
    tmp_path: Path, pods: int, is_asked: bool, settings: Mapping[str, str]
) -> None:
    """A short queue, few nodes to look at, an extender that stands by, or one that is not told to."""
    async with serving(tmp_path, *NODES, settings=settings) as extender:
        await queue(extender, pods)
        if is_asked:
            await ask(extender)
        await asyncio.sleep(SOME_ROUNDS_SECONDS)
        assert await nominated(extender) == {}


async def test_a_queue_is_nominated_and_what_does_not_come_true_is_taken_back(tmp_path: Path) -> None:
    """Nobody binds here. After the life of the nominations they are gone, and not made again at once."""
    async with serving(tmp_path, *NODES, settings=STEERED) as extender:
        await queue(extender, 5)
        await ask(extender)

        async def all_are() -> bool:
            return len(await nominated(extender)) == 5

        await eventually(all_are)

        async def none_is() -> bool:
            return await nominated(extender) == {}

        await eventually(none_is)
        await asyncio.sleep(SOME_ROUNDS_SECONDS)
        assert await none_is()
        page = (await extender.get("/metrics"))[1]
        assert 'gputopo_nominations_total{outcome="withdrawn"} 5.0' in page


async def test_a_nominated_pod_is_bound_to_the_gpus_that_were_held_for_it(tmp_path: Path) -> None:
    """One call of filter about one node, then the bind; while others are held theirs."""
    async with serving(tmp_path, *NODES, settings=STEERED | {"steering.life": "30s"}) as extender:
        await queue(extender, 4, gpus=4)
        await ask(extender)

        async def all_are() -> bool:
            return len(await nominated(extender)) == 4

        await eventually(all_are)
        where = await nominated(extender)
        taken: set[str] = set()
        for name in reversed(where):
            pod = (await extender.api.call("GET", f"{PODS}/{name}")).ok()
            _, answer = await extender.post("filter", {"Pod": pod, "NodeNames": [where[name]]})
            assert answer["NodeNames"] == [where[name]]
            bind = {"PodName": name, "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": where[name]}
            assert (await extender.post("bind", bind))[1] == {"Error": ""}
            bound = (await extender.api.call("GET", f"{PODS}/{name}")).ok()
            assert "nominatedNodeName" not in bound["status"]
            gpus = set(decode_placement(bound["metadata"]["annotations"][keys.PLACEMENT]).containers["main"])
            assert not taken & gpus
            taken |= gpus


async def test_preemptions_nomination_outlives_ours(tmp_path: Path) -> None:
    """It comes while ours stands, and is neither overwritten nor taken back."""
    async with serving(tmp_path, *NODES, settings=STEERED) as extender:
        await queue(extender, 4)
        await ask(extender)

        async def all_are() -> bool:
            return len(await nominated(extender)) == 4

        await eventually(all_are)
        theirs = {"status": {"nominatedNodeName": "n2"}}
        (await extender.api.call("PATCH", f"{PODS}/p0/status", theirs, content_type=MERGE_PATCH)).ok()

        async def only_theirs() -> bool:
            return await nominated(extender) == {"p0": "n2"}

        await eventually(only_theirs)
        await asyncio.sleep(SOME_ROUNDS_SECONDS)
        assert await only_theirs()
