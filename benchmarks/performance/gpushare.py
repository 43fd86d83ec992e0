"""Alibaba's gpushare-scheduler-extender, the Go extender that is best known: a peer that answers the same verbs.

Its module is not built here; `--gpushare` names the program. It knows a node by two resources of its own, and a pod by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.processes.client import Json
from benchmarks.processes.extender_process import RunningExtender
from benchmarks.processes.process import free_port, running
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object

_MEMORY, _COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"


@asynccontextmanager
async def running_gpushare(program: Path, kubeconfig: Path, folder: Path) -> AsyncIterator[RunningExtender]:
    """Run it as a process of its own, and enter once it is ready."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command: list[str | Path] = ["env", f"KUBECONFIG={kubeconfig}", f"PORT={port}", "LOG_LEVEL=error", program]
    async with running("gpushare", command, folder, f"{url}/version") as process:
        yield RunningExtender(url, process, "/gpushare-scheduler", is_threaded=True)


def gpushare_node(node: SimulatedNode) -> Json:
    """Return a node that offers the memory of its GPUs, GiB, as its device plugin would."""
    made = node_object(node)
    offered = {_MEMORY: str(node.share_gib * len(node.topology)), _COUNT: str(len(node.topology))}
    for part in ("capacity", "allocatable"):
        made["status"][part] = made["status"][part] | offered
    return made


def gpushare_pod(name: str, gib: int) -> Json:
    """Return a pod that asks for so much memory of one GPU."""
    pod = gpu_pod(name, 0)
    (main,) = pod["spec"]["containers"]
    main["resources"] = {"limits": {_MEMORY: str(gib)}, "requests": main["resources"]["requests"] | {_MEMORY: str(gib)}}
    return pod
