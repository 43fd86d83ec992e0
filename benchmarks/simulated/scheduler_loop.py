"""One kube-scheduler, reduced to what an extender sees of it: in-tree counting, then filter, prioritize and bind over HTTP.

The calls, their order and their bodies are those recorded from the real scheduler; preemption and retries are left out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from benchmarks.processes.client import ApiClient, Json
from benchmarks.simulated.pod_life import has_ended
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, decode_placement
from topology.request.gpu_request import parse_pod


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The pod runs there, with the record that came with the Binding."""

    node: str
    record: PlacementRecord
    candidates: tuple[str, ...]
    """The nodes that the extender passed on, best first."""


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node will do; the message is what the pod's event would say."""

    message: str


class ExtenderFailed(Exception):
    """The extender answered in a way that kube-scheduler treats as a failure."""


class SchedulerLoop:
    """Schedules one pod at a time, as kube-scheduler does."""

    def __init__(self, api: ApiClient, session: aiohttp.ClientSession, extender_url: str) -> None:
        self._api = api
        self._session = session
        self._verbs = f"{extender_url}/v1/extender"

    async def schedule(self, pod: Json) -> BoundPod | Unschedulable:
        """Run one scheduling cycle and, if a node is found, the binding cycle."""
        identity = pod["metadata"]
        nodes = (await self._api.call("GET", "/api/v1/nodes")).ok()["items"]
        fitting = await self._count(nodes, parse_pod(pod).request.gpus)
        rejected = Counter({"Insufficient nvidia.com/gpu": len(nodes) - len(fitting)})
        if fitting:
            answer = await self._call("filter", {"Pod": pod, "Nodes": None, "NodeNames": fitting})
            if answer.get("Error"):
                raise ExtenderFailed(answer["Error"])
            fitting = answer.get("NodeNames") or []
            for reasons in (answer.get("FailedNodes"), answer.get("FailedAndUnresolvableNodes")):
                rejected.update((reasons or {}).values())
        if not fitting:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()) if count)
            return Unschedulable(f"0/{len(nodes)} nodes are available: {reasons}.")
        node = fitting[0] if len(fitting) == 1 else await self._best(pod, fitting)
        binding = {"PodName": identity["name"], "PodNamespace": identity["namespace"], "PodUID": identity["uid"]}
        outcome = await self._call("bind", {**binding, "Node": node})
        if outcome.get("Error"):
            raise ExtenderFailed(outcome["Error"])
        path = f"/api/v1/namespaces/{identity['namespace']}/pods/{identity['name']}"
        bound = (await self._api.call("GET", path)).ok()
        return BoundPod(node, decode_placement(bound["metadata"]["annotations"][keys.PLACEMENT]), tuple(fitting))

    async def _count(self, nodes: list[Json], gpus: int) -> list[str]:
        """Return the nodes with enough unrequested GPUs, as NodeResourcesFit counts them."""
        used: Counter[str] = Counter()
        for pod in (await self._api.call("GET", "/api/v1/pods")).ok()["items"]:
            if (node := pod["spec"].get("nodeName")) and not has_ended(pod):
                used[node] += parse_pod(pod).request.gpus
        capacity = {
            node["metadata"]["name"]: int(node["status"]["allocatable"].get(keys.GPU_RESOURCE, 0)) for node in nodes
        }
        return [name for name, count in capacity.items() if count - used[name] >= gpus]

    async def _best(self, pod: Json, names: list[str]) -> str:
        scores = await self._call("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": names})
        by_name = {entry["Host"]: entry["Score"] for entry in scores}
        return max(names, key=lambda name: by_name.get(name, 0))

    async def _call(self, verb: str, body: Json) -> Any:
        async with self._session.post(f"{self._verbs}/{verb}", data=msgspec.json.encode(body)) as response:
            answer = await response.read()
            if response.status != 200:
                raise ExtenderFailed(f"{verb}: {response.status} {answer[:200].decode(errors='replace')}")
            return msgspec.json.decode(answer)
