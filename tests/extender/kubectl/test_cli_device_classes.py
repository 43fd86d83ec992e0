"""DeviceClasses tell the plugin's estimate who hands out GPUs that a DRA driver alone publishes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import ApiResource
from benchmarks.simulated.double.server import ApiServer, Faultless
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, join
from extender.cluster.candidates.openness import BY_DRA, FOR_CLAIMS_ALONE
from extender.features.dra.claim_spec import OUR_CLASS
from tests.dra import gpu, resource_slice
from tests.extender.plugin import invoke
from topology.annotations import keys

ROOT = "apis/resource.k8s.io/v1"
CLAIMS = ApiResource(ROOT, "resourceclaims", "ResourceClaim")
SLICES = ApiResource(ROOT, "resourceslices", "ResourceSlice", namespaced=False, fields=("metadata.name", "spec.driver"))
CLASSES = ApiResource(ROOT, "deviceclasses", "DeviceClass", namespaced=False)
HERE = SimulatedNode("n1", "t4-4", has_plugin=False)
NOT_KNOWN = "deviceclasses cannot be listed: GPUs that a DRA driver alone publishes count as free, "


class Refusing(Faultless):
    """Lets nobody list DeviceClasses."""

    async def exchange(
        self, request: web.BaseRequest, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        return web.Response(status=403) if request.path.endswith("/deviceclasses") else await handler(request)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "free", "closed"),
    [
        ({OUR_CLASS: None}, 4, None),
        ({"gpu.nvidia.com": None}, 0, FOR_CLAIMS_ALONE),
        ({"gpu.nvidia.com": keys.GPU_RESOURCE}, 0, BY_DRA),
        (None, 4, None),
    ],
)
async def test_gpus_that_the_extender_does_not_allocate_are_not_free(
    tmp_path: Path, classes: dict[str, str | None] | None, free: int, closed: str | None
) -> None:
    """The chart has its class where `dra.enabled` is set. Without the right to list classes it says that it guesses."""
    store = ObjectStore(kinds=(CLAIMS, SLICES, CLASSES))
    store.create(
        SLICES, "", resource_slice("n1", [gpu(at, device.uuid) for at, device in enumerate(HERE.topology.gpus)])
    )
    for name, resource in (classes or {}).items():
        store.create(CLASSES, "", {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}})
    faults = Refusing() if classes is None else None
    where = "--kubeconfig", str(tmp_path / "kubeconfig")
    async with ApiServer(store, faults=faults) as server, ApiClient(server.url) as api:
        await join(api, [HERE])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        now = await asyncio.to_thread(invoke, "node", "n1", "-o", "json", *where)
        await asyncio.to_thread(invoke, "snapshot", str(tmp_path / "file"), *where)
    later = await asyncio.to_thread(invoke, "node", "n1", "-o", "json", "--snapshot", str(tmp_path / "file"))
    for answer in (now, later):
        node = json.loads(answer.stdout)
        assert (node["free"], node["closed"], node.get("by_claim", False)) == (free, closed, closed is None)
        assert answer.stderr[: len(NOT_KNOWN)] == (NOT_KNOWN if classes is None else "")
