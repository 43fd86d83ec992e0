"""`kubectl gputopo claims` lists the ResourceClaims of our DeviceClass: what they request, hold, and for whom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.resources import LEASES, NAMESPACES, ApiResource
from benchmarks.simulated.double.server import ApiServer, Faultless
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, join
from extender.kubectl.claim_list import state_of
from tests.dra import Json, allocated, gpu, read_claim, resource_slice
from tests.extender.features.dra.cases import alternative, claim, exactly
from tests.extender.plugin import BEGAN, invoke

ROOT = "apis/resource.k8s.io/v1"
CLAIMS = ApiResource(ROOT, "resourceclaims", "ResourceClaim")
SLICES = ApiResource(ROOT, "resourceslices", "ResourceSlice", namespaced=False, fields=("metadata.name", "spec.driver"))
HERE = SimulatedNode("n1", "t4-4")
CREATED = f"{BEGAN:%Y-%m-%dT%H:%M:%SZ}"
Run = Callable[..., Awaitable[Result]]


class Refusing(Faultless):
    """Lets nobody list ResourceClaims."""

    async def exchange(
        self, request: web.BaseRequest, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path.endswith("/resourceclaims"):
            return web.Response(status=403)
        return await handler(request)


@asynccontextmanager
async def cluster(
    tmp_path: Path, *claims: Json, faults: Faultless | None = None, kinds: Sequence[ApiResource] = (CLAIMS, SLICES)
) -> AsyncIterator[tuple[Run, ObjectStore]]:
    """Start an API server with these claims and a node of four GPUs, and return how to run `claims` there."""
    store = ObjectStore(now=lambda: BEGAN, kinds=kinds)
    devices = [gpu(minor, device.uuid) for minor, device in enumerate(HERE.topology.gpus)]
    async with ApiServer(store, faults=faults) as server, ApiClient(server.url) as api:
        await join(api, [HERE])
        store.create(NAMESPACES, "", {"metadata": {"name": "ml"}})
        store.create(SLICES, "", resource_slice("n1", devices))
        for item in claims:
            store.create(CLAIMS, item["metadata"]["namespace"], item)
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        words = "claims", "--kubeconfig", str(tmp_path / "kubeconfig")
        yield lambda *more: asyncio.to_thread(invoke, *words, *more), store


def held(name: str, *devices: str, pod: str = "", **metadata: str) -> Json:
    """Return a claim of our class that holds these devices of the node."""
    item = claim(name, exactly(len(devices))) | {"status": allocated(name, "n1", *devices)["status"]}
    item["metadata"] |= metadata
    if pod:
        item["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": pod}]
    return item


def waiting(name: str, *requests: Json, pod: str) -> Json:
    """Return a claim that was made for a pod and holds nothing."""
    item = claim(name, *requests)
    item["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": pod, "uid": pod, "controller": True}]
    return item


@pytest.mark.slow
async def test_each_claim_of_our_class_has_a_row_in_the_order_of_names(tmp_path: Path) -> None:
    """A GPU is named by its index, or as its device where no ResourceSlice has it. Claims of other classes are not shown."""
    ways = {"name": "gpus", "firstAvailable": [alternative(4, "large"), alternative(2, "small")]}
    claims = (
        waiting("g", exactly(1, newer=True), pod="unread"),
        waiting("f", exactly(2, "one"), exactly(0, "two", allocationMode="All"), pod="all"),
        waiting("e", ways, pod="either"),
        held("d", "gpu-9"),
        held("c", "gpu-1", "gpu-3", pod="runs"),
        held("b", "gpu-0", namespace="default"),
        waiting("a", exactly(2, "one"), exactly(1, "two"), pod="waits"),
        claim("others", exactly(deviceClassName="gpu.nvidia.com")),
    )
    async with cluster(tmp_path, *claims) as (run, _):
        table = await run("-A", "--no-headers")
        names = await run("-n", "ml", "-o", "name")
        document = json.loads((await run("-o", "json")).stdout)
    assert [line.split() for line in table.stdout.splitlines()] == [
        ["default", "b", "allocated", "1", "n1", "0", "<none>", CREATED],
        ["ml", "a", "waiting", "3", "<none>", "<none>", "waits", CREATED],
        ["ml", "c", "reserved", "2", "n1", "1,3", "runs", CREATED],
        ["ml", "d", "allocated", "1", "n1", "gpu-9", "<none>", CREATED],
        ["ml", "e", "waiting", "4/2", "<none>", "<none>", "either", CREATED],
        ["ml", "f", "waiting", "all", "<none>", "<none>", "all", CREATED],
        ["ml", "g", "waiting", "<none>", "<none>", "<none>", "unread", CREATED],
    ]
    assert names.stdout.split() == [f"resourceclaim/{name}" for name in "acdefg"]
    assert document["has_planner"] is None
    (row,) = document["claims"]
    assert row["devices"] == [{"name": "gpu-0", "uuid": HERE.topology.gpus[0].uuid, "index": 0}]


def test_a_claim_that_is_being_deleted_says_so_whatever_it_holds() -> None:
    """Its finalizer keeps it until its pod has ended."""
    item = held("a", "gpu-0", pod="ends", deletionTimestamp=CREATED)
    assert state_of(read_claim(item)) == "deleting"


@pytest.mark.slow
async def test_claims_that_nobody_plans_are_a_no(tmp_path: Path) -> None:
    """They are listed; with a planner, and where none waits, the answer is a yes."""
    async with cluster(tmp_path, waiting("a", exactly(), pod="waits")) as (run, store):
        alone = await run("-A")
        spec = {"holderIdentity": "extender", "renewTime": "2100-01-01T00:00:00.000000Z"}
        store.create(LEASES, "default", {"metadata": {"name": "gputopo-queue"}, "spec": spec})
        planned = await run("-A")
        none = await run()
    assert (alone.exit_code, alone.stderr) == (
        1,
        "nobody plans the claims that wait: no extender holds the Lease gputopo-queue\n",
    )
    assert planned.stdout == alone.stdout and "waiting" in planned.stdout
    assert (planned.exit_code, planned.stderr) == (0, "")
    assert (none.exit_code, none.stdout) == (0, "no ResourceClaim of gpus.gputopo.dev or mig.gputopo.dev\n")


async def test_who_may_not_list_claims_hears_which_rights_are_needed(tmp_path: Path) -> None:
    """It is an error, not an empty list."""
    async with cluster(tmp_path, faults=Refusing()) as (run, _):
        result = await run()
    assert (result.exit_code, result.stderr) == (2, "no right to list resourceclaims, resourceslices or nodes\n")


async def test_an_api_server_without_claims_and_a_snapshot_say_so(tmp_path: Path) -> None:
    """Neither can hold a claim that waits."""
    (tmp_path / "empty.json").write_text('{"kind": "List", "items": []}')
    async with cluster(tmp_path, kinds=()) as (run, _):
        old = await run()
        snapshot = await run("--snapshot", str(tmp_path / "empty.json"))
    assert (old.exit_code, snapshot.exit_code) == (2, 2)
    assert "has no ResourceClaims of resource.k8s.io/v1" in old.stderr
    assert "does not hold ResourceClaims that wait" in snapshot.stderr
