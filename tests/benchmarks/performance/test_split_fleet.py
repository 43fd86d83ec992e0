"""Two schedulers with an extender each, on one fleet: as `docs/how-to/large-clusters.md` says that a fleet can be split."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from benchmarks.performance.verbs import BIND, FILTER, PODS, PRIORITIZE, about, ask, binding, create, running_cluster
from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.simulated.fleet import fleet, gpu_pod
from topology.annotations import keys
from topology.annotations.records import decode_ledger

SCHEDULERS = ("gputopo", "gputopo-b")
TRIES = 20


async def place(api: ApiClient, extender: RunningExtender, name: str, scheduler: str, nodes: list[str]) -> None:
    """Bring a pod of four GPUs to one of these nodes; a bind that is refused is tried anew, as kube-scheduler does."""
    pod = await create(api, gpu_pod(name, 4, schedulerName=scheduler))
    async with aiohttp.ClientSession() as session:
        for _ in range(TRIES):
            try:
                fitting, _ = await ask(session, extender, FILTER, about(pod, nodes))
                scores, _ = await ask(session, extender, PRIORITIZE, about(pod, fitting["NodeNames"]))
                best = max(scores, key=lambda entry: entry["Score"])["Host"]
                await ask(session, extender, BIND, binding(pod, best))
                return
            except (RuntimeError, ValueError):
                await asyncio.sleep(0.2)
    raise AssertionError(f"{name} found no place")


@pytest.mark.slow
async def test_two_extenders_share_a_fleet_split_or_not(tmp_path: Path) -> None:
    """Half of the pods find places in pools that taints keep apart, the others anywhere: all GPUs are taken, and none twice."""
    simulated = fleet({"hgx-h100": 4})
    names = [node.name for node in simulated]
    settings = {"scheduling": {"schedulerNames": list(SCHEDULERS)}}
    folders = [tmp_path / scheduler for scheduler in SCHEDULERS]
    for folder in folders:
        folder.mkdir()
    async with (
        running_cluster(tmp_path, simulated) as (api, kubeconfig),
        running_extender(kubeconfig, folders[0], settings) as one,
        running_extender(kubeconfig, folders[1], settings) as other,
    ):
        asked = list(zip((one, other), SCHEDULERS, (names[:2], names[2:]), strict=True))
        for kept_apart in (True, False):
            await asyncio.gather(
                *(
                    place(
                        api,
                        extender,
                        f"{scheduler}-{kept_apart}-{number}".lower(),
                        scheduler,
                        pool if kept_apart else names,
                    )
                    for extender, scheduler, pool in asked
                    for number in range(2)
                )
            )
        bound = {
            pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in (await api.call("GET", PODS)).ok()["items"]
        }
        ledgers = [(await api.call("GET", f"/api/v1/nodes/{name}")).ok()["metadata"]["annotations"] for name in names]
    for _, scheduler, pool in asked:
        assert {bound[f"{scheduler}-true-{number}"] for number in range(2)} <= set(pool)
    assert [len({claim.gpu for claim in decode_ledger(each[keys.LEDGER]).claims}) for each in ledgers] == [8] * 4
