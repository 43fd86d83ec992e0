"""A small simulated cluster behind the real extender, the same for every picture."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import WITHOUT_VALUES, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from benchmarks.simulated.scheduler_loop import SchedulerLoop

NODES: Final = (
    SimulatedNode("h100-a", "hgx-h100"),
    SimulatedNode("l40s-a", "l40s-8"),
    SimulatedNode("v100-a", "dgx-1v"),
    SimulatedNode("v100-b", "dgx-1v", used=(1, 3, 4, 6)),
)
PODS: Final = {
    "finetune": (6, {"gputopo.dev/gpu-model": "*H100*"}),
    "train": (4, {"gputopo.dev/gpu-model": "*V100*", "gputopo.dev/required-affinity": "nvlink"}),
    "serve": (2, {"gputopo.dev/gpu-model": "*V100*", "gputopo.dev/min-bandwidth": "40"}),
    "pretrain": (4, {"gputopo.dev/required-affinity": "nvlink"}),
}
"""Name → GPUs and annotations, in order of arrival."""
PENDING: Final = "pretrain"


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[str]:
    """Schedule the pods, and yield the extender's URL; `folder` takes its files."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api, aiohttp.ClientSession() as session:
        write_kubeconfig(folder / "kubeconfig", server.url)
        await join(api, NODES)
        async with running_extender(folder / "kubeconfig", folder, WITHOUT_VALUES) as extender:
            scheduler = SchedulerLoop(api, session, extender.url)
            for name, (gpus, annotations) in PODS.items():
                pod = gpu_pod(name, gpus, annotations, schedulerName="gputopo")
                await scheduler.schedule((await api.call("POST", "/api/v1/namespaces/default/pods", pod)).ok())
            yield extender.url
