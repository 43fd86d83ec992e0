"""The simulated kubelets do the same on the double and on the real kube-apiserver, which checks what they write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json
from benchmarks.simulated.fleet import gpu_pod
from benchmarks.simulated.pod_life import EXIT_CODE
from tests.world.kubelets import Kubelets
from topology.annotations import keys
from topology.annotations.records import Observed, PlacementRecord, decode_observed, encode_placement


async def bind(api: ApiClient, pods: str, node: str) -> None:
    (await api.call("POST", pods, gpu_pod("p", 1))).ok()
    placement = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": ("GPU-a",)}))}
    binding = {"metadata": {"name": "p", "annotations": placement}, "target": {"name": node.rpartition("/")[2]}}
    (await api.call("POST", f"{pods}/p/binding", binding)).ok()


async def watched(api: ApiClient, path: str, holds: Callable[[str, Json], bool]) -> Json:
    """Return the object as of the first event about it of which `holds` is true."""
    collection, _, name = path.rpartition("/")
    async with asyncio.timeout(60), aclosing(api.watch(collection, fieldSelector=f"metadata.name={name}")) as events:
        return await anext(item async for kind, item in events if holds(kind, item))


def observed(node: Json) -> Observed:
    return decode_observed(node["metadata"].get("annotations", {}).get(keys.OBSERVED, '{"v":1,"gpus":{}}'))


async def test_a_bound_pod_runs_with_its_gpus(api: ApiClient, pods: str, node: str) -> None:
    """The kubelet sets it running and says who holds which GPU."""
    async with Kubelets(api):
        await bind(api, pods, node)
        pod = await watched(api, f"{pods}/p", lambda _, item: item["status"].get("phase") == "Running")
        assert "running" in pod["status"]["containerStatuses"][0]["state"]
        holder = observed(await watched(api, node, lambda _, item: bool(observed(item).gpus))).gpus["GPU-a"]
        assert (holder.name, holder.container) == ("p", "main")


async def test_a_deleted_pod_ends_before_it_goes(api: ApiClient, pods: str, node: str) -> None:
    """Its last version shows terminated containers, and its node no longer shows it."""
    async with Kubelets(api):
        await bind(api, pods, node)
        await watched(api, f"{pods}/p", lambda _, item: item["status"].get("phase") == "Running")
        going = asyncio.create_task(watched(api, f"{pods}/p", lambda kind, _: kind == "DELETED"))
        await watched(api, node, lambda _, item: bool(observed(item).gpus))
        (await api.call("DELETE", f"{pods}/p")).ok()
        assert "terminated" in (await going)["status"]["containerStatuses"][0]["state"]
        await watched(api, node, lambda _, item: not observed(item).gpus)


async def test_a_pod_succeeds_on_request(api: ApiClient, pods: str, node: str) -> None:
    """An annotation ends it with an exit code; the object stays."""
    async with Kubelets(api):
        await bind(api, pods, node)
        patch = {"metadata": {"annotations": {EXIT_CODE: "0"}}}
        (await api.call("PATCH", f"{pods}/p", patch, content_type=MERGE_PATCH)).ok()
        pod = await watched(api, f"{pods}/p", lambda _, item: item["status"].get("phase") == "Succeeded")
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
