"""What the writes of a pod cost that is steered and bound by us: one client makes them, with no scheduler and no extender.

No extender can have more pods bound a second on this machine; so this is the floor of a burst.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.performance.verbs import PODS, create
from benchmarks.processes.client import MERGE_PATCH, ApiClient, for_all
from benchmarks.processes.control_plane import running_control_plane
from benchmarks.simulated.fleet import POD_SIZES, gpu_pod, join, mixed_fleet
from topology.annotations import keys

_AT_ONCE: Final = 24
_BYTES: Final = 300
"""Of an annotation: about what a placement has, and what a claim adds to a ledger."""


async def pods_per_second(binaries: Path, nodes: int, pods: int) -> float:
    """Return how many pods a second a control plane of its own takes in, when this alone is what it does."""
    with tempfile.TemporaryDirectory(prefix="gputopo-writes-") as folder:
        async with (
            running_control_plane(binaries, Path(folder)) as plane,
            ApiClient.from_kubeconfig(plane.kubeconfig) as api,
        ):
            fleet = mixed_fleet(nodes)
            await join(api, fleet)
            began = time.perf_counter()
            await write(api, [node.name for node in fleet], pods)
            return round(pods / (time.perf_counter() - began), 1)


async def write(api: ApiClient, nodes: Sequence[str], pods: int) -> None:
    """Create, nominate, claim for and bind so many pods, each on the next node."""
    await for_all(range(pods), lambda number: _write(api, number, nodes[number % len(nodes)]), _AT_ONCE)


async def _write(api: ApiClient, number: int, node: str) -> None:
    name = f"pod-{number}"
    nominated = {"metadata": {"annotations": {keys.NOMINATED: node}}, "status": {"nominatedNodeName": node}}
    claimed = {"metadata": {"annotations": {keys.LEDGER: f"{number:0{_BYTES}}"}}}
    binding = {
        "metadata": {"name": name, "annotations": {keys.PLACEMENT: "x" * _BYTES}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await create(api, gpu_pod(name, POD_SIZES[number % len(POD_SIZES)]))
    (await api.call("PATCH", f"{PODS}/{name}/status", nominated, content_type=MERGE_PATCH)).ok()
    (await api.call("PATCH", f"/api/v1/nodes/{node}", claimed, content_type=MERGE_PATCH)).ok()
    (await api.call("POST", f"{PODS}/{name}/binding", binding)).ok()
