"""The words in which scenarios are told: nodes join, pods are submitted, and we look at what became of them."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.client import ApiClient
from benchmarks.fleet import SimulatedNode, gpu_pod, join
from benchmarks.pod_life import EXIT_CODE
from tests.cluster.api import Api, Json
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.installation import SCHEDULER_NAME
from tests.cluster.objects import NODES, PODS
from topology import keys
from topology.records import Ledger, PlacementRecord, decode_ledger, decode_placement

_AT_ONCE = 8


class GpuCluster:
    """A control plane with an extender and a scheduler that asks it."""

    def __init__(self, plane: ControlPlane, extender: ExtenderProcess) -> None:
        self.plane = plane
        self.extender = extender

    @property
    def api(self) -> Api:
        """The client that may do everything."""
        return self.plane.admin

    @property
    def components(self) -> list[Component]:
        """All processes, for their logs."""
        return [*self.plane.components, self.extender]

    def join(self, *nodes: SimulatedNode) -> None:
        """Let nodes join, each with the pod that holds its used GPUs."""

        async def with_a_client() -> None:
            async with ApiClient.from_kubeconfig(self.plane.kubeconfig()) as client:
                await join(client, nodes)

        asyncio.run(with_a_client())

    def submit(self, *pods: Json) -> None:
        """Create pods, many at once."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda pod: self.api.post(PODS, pod), pods))

    def pod(self, name: str) -> Json:
        """Return a pod as it is now."""
        return self.api.get(f"{PODS}/{name}")

    def node_of(self, name: str) -> str | None:
        """Return where a pod is bound."""
        node: str | None = self.pod(name)["spec"].get("nodeName")
        return node

    def is_running(self, name: str) -> bool:
        """Whether a pod's containers have started."""
        return bool(self.pod(name)["status"].get("phase") == "Running")

    def placement(self, name: str) -> PlacementRecord:
        """Return a bound pod's placement."""
        return decode_placement(self.pod(name)["metadata"]["annotations"][keys.PLACEMENT])

    def ledger(self, node: str) -> Ledger:
        """Return a node's ledger."""
        return decode_ledger(self.api.get(f"{NODES}/{node}")["metadata"]["annotations"][keys.LEDGER])

    def claims(self, node: str, pod: str) -> set[str]:
        """Return the GPUs that a node's ledger promises to a pod."""
        return {claim.gpu for claim in self.ledger(node).claims if claim.name == pod}

    def bound(self) -> list[Json]:
        """Return the pods that we have placed."""
        pods = self.api.list(PODS)
        return [pod for pod in pods if pod["spec"]["schedulerName"] == SCHEDULER_NAME and "nodeName" in pod["spec"]]

    def told(self) -> list[Json]:
        """Return what the scheduler was told of binds that went well, over all starts of the extender."""
        return [call for call in self.extender.said("bind") if call["verdict"] == "bound" and "gpus" in call]

    def why_pending(self, name: str) -> str:
        """Return the newest sentence in which the scheduler says why a pod waits; empty before the first."""
        selector = f"reason=FailedScheduling,involvedObject.name={name}"
        events = self.api.list("/api/v1/namespaces/default/events", fieldSelector=selector)
        newest = max(events, key=lambda event: int(event["metadata"]["resourceVersion"]), default={"message": ""})
        return str(newest["message"])

    def delete(self, name: str) -> None:
        """Ask for a pod's deletion."""
        self.api.delete(f"{PODS}/{name}")

    def complete(self, name: str) -> None:
        """Let a pod's containers end well."""
        self.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {EXIT_CODE: "0"}}})


def wants(name: str, gpus: int, *asks: str, **spec: Any) -> Json:
    """Return a pod for our scheduler, which asks in words such as `required-affinity: nvlink`.

    >>> wants("ring", 4, "required-affinity: nvlink")["metadata"]["annotations"]
    {'gputopo.dev/required-affinity': 'nvlink'}
    """
    pairs = (ask.split(": ") for ask in asks)
    annotations = {f"{keys.USER_PREFIX}{key}": value for key, value in pairs}
    return gpu_pod(name, gpus, annotations, **{"schedulerName": SCHEDULER_NAME, **spec})


def uuids(node: SimulatedNode, positions: Iterable[int]) -> set[str]:
    """Return the UUIDs of a node's GPUs at these positions."""
    return {node.topology.gpus[position].uuid for position in positions}
