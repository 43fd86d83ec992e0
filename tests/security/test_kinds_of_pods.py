"""A tenant makes pods of ever new kinds: what a call for somebody else's pod costs the extender then, as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import aiohttp
import msgspec
import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from tests.extender.polling import eventually
from tests.security.target import Target, filter_body, target
from topology.annotations import keys

pytestmark = pytest.mark.waits

NODES = [SimulatedNode(f"n{number:02d}", ("dgx-a100", "hgx-h100")[number % 2]) for number in range(40)]
BODY = filter_body([node.name for node in NODES], 2)
LEARNING = {"scheduling": {"appraiseAfter": "1ms"}}
MOST_CPU_MS = 250.0
"""Of the event loop during one call, whatever it does beside."""
REST_MS, REST_SECONDS, RESTS = 3.0, 0.1, 5
"""An extender that computes less than that in as many intervals in a row has nothing left to learn."""

numbers = count()


def globs() -> str:
    """Return patterns for GPU models that no pod has named before, as many as are read."""
    number = next(numbers)
    return ",".join(f"{number}{i}?" for i in range(60))[:250].rpartition(",")[0]


async def cost(http: aiohttp.ClientSession, extender: RunningExtender) -> float:
    """Ask filter about somebody else's pod; returns the CPU that was computed meanwhile, in ms."""
    before = extender.cpu_ms()
    async with http.post(f"{extender.url}/v1/extender/filter", data=BODY) as response:
        assert msgspec.json.decode(await response.read())["NodeNames"]
    return extender.cpu_ms() - before


async def rest(extender: RunningExtender) -> None:
    """Wait until the extender has learnt what there is to learn."""
    at_rest = 0

    async def is_at_rest() -> bool:
        nonlocal at_rest
        before = extender.cpu_ms()
        await asyncio.sleep(REST_SECONDS)
        at_rest = at_rest + 1 if extender.cpu_ms() - before < REST_MS else 0
        return at_rest == RESTS

    await eventually(is_at_rest, 240)


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[Target, aiohttp.ClientSession]]:
    """Run an extender for a cluster with the tenant's namespace."""
    async with target(folder, *NODES, settings=LEARNING) as attacked, aiohttp.ClientSession() as http:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}}
        (await attacked.api.call("POST", "/api/v1/namespaces", namespace)).ok()
        yield attacked, http


async def make(api: ApiClient, *, stays: bool) -> None:
    """Create a pod of a new kind, and delete it at once unless it stays."""
    pod = gpu_pod(f"evil-{next(numbers)}", 1, {keys.GPU_MODEL: globs()})
    pods = "/api/v1/namespaces/evil/pods"
    (await api.call("POST", pods, pod)).ok()
    if not stays:
        (await api.call("DELETE", f"{pods}/{pod['metadata']['name']}")).ok()


async def test_pods_of_ever_new_kinds_that_come_and_go_cost_the_calls_of_others_little(tmp_path: Path) -> None:
    """A quota of one GPU is enough for any number of them."""
    async with cluster(tmp_path) as (attacked, http):
        extender, costs = RunningExtender(attacked.url, attacked.process), list[float]()
        for number in range(1_320):  # an extender learns anew at 1,294
            await make(attacked.api, stays=False)
            if number % 20 == 19:
                costs.append(await cost(http, extender))
        await rest(extender)
        costs.append(await cost(http, extender))
        assert max(costs) < MOST_CPU_MS


async def test_pods_of_ever_new_kinds_that_wait_cost_little_after_a_restart(tmp_path: Path) -> None:
    """It learns from all of them at once."""
    async with cluster(tmp_path) as (attacked, http):
        for _ in range(900):
            await make(attacked.api, stays=True)
        (tmp_path / "second").mkdir()
        async with running_extender(tmp_path / "kubeconfig", tmp_path / "second", LEARNING) as extender:
            costs = [await cost(http, extender)]
            await rest(extender)
            costs.append(await cost(http, extender))
        assert max(costs) < MOST_CPU_MS
