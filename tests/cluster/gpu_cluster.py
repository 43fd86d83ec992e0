"""The words in which scenarios are told: nodes join, pods are submitted, and we look at what became of them."""

import asyncio
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from benchmarks.processes.client import ApiClient
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from benchmarks.simulated.pod_life import EXIT_CODE
from tests.cluster.api import Api, Json
from tests.cluster.component import Component
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.installation import Installation
from tests.cluster.objects import NODES, PODS
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.records import (
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    decode_ledger,
    decode_placement,
    encode_observed,
)

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
        """Let nodes join, each with the pod that holds its used GPUs; return when the extender knows them, if it runs."""

        async def with_a_client() -> None:
            async with ApiClient.from_kubeconfig(self.plane.kubeconfig()) as client:
                await join(client, nodes)

        asyncio.run(with_a_client())
        if self.extender.is_running:
            names = {node.name for node in nodes}
            eventually(lambda: not names - self._nodes_known_to_the_extender())

    def _nodes_known_to_the_extender(self) -> set[str]:
        status, text = self.extender.read("/v1/inspect/nodes?limit=200")
        return {node["name"] for node in json.loads(text)["nodes"]} if status == 200 else set()

    def await_quiet(self, for_seconds: float = 2.0) -> None:
        """Return when kube-scheduler has asked for nothing for so long: what waits, it has put aside."""

        def is_quiet() -> bool:
            asked = len(self.extender.said("filter"))
            time.sleep(for_seconds)
            return len(self.extender.said("filter")) == asked

        eventually(is_quiet)

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
        """Return the GPUs that a node's ledger promises to a pod; none before the node has a ledger."""
        if keys.LEDGER not in self.api.get(f"{NODES}/{node}")["metadata"].get("annotations", {}):
            return set()
        return {claim.gpu for claim in self.ledger(node).claims if claim.name == pod}

    def bound(self) -> list[Json]:
        """Return the pods that we have placed."""
        pods = self.api.list(PODS)
        return [pod for pod in pods if pod["spec"]["schedulerName"] == SCHEDULER_NAME and "nodeName" in pod["spec"]]

    def told(self) -> list[Json]:
        """Return what the scheduler was told of binds that went well, over all starts of the extender."""
        return [call for call in self.extender.said("bind") if call["verdict"] == "bound" and "gpus" in call]

    def events(self, reason: str) -> list[Json]:
        """Return the events of a reason, about pods and nodes."""
        return self.api.list("/api/v1/namespaces/default/events", fieldSelector=f"reason={reason}")

    def why_pending(self, name: str) -> str:
        """Return the newest sentence in which the scheduler says why a pod waits; empty before the first."""
        events = [event for event in self.events("FailedScheduling") if event["involvedObject"]["name"] == name]
        newest = max(events, key=lambda event: int(event["metadata"]["resourceVersion"]), default={"message": ""})
        return str(newest["message"])

    def bind_around_us(self, name: str, gpus: int, node: str) -> None:
        """Create a pod and bind it, as a scheduler without an extender does."""
        self.api.post(PODS, gpu_pod(name, gpus, schedulerName="somebody-else"))
        self.api.post(f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}})

    def report(self, node: str, generation: int, **held: Collection[str]) -> None:
        """Let a node's agent say which pod holds which GPUs, in its report of this number."""
        holders = {gpu: Holder("default", name, "main") for name, gpus in held.items() for gpu in gpus}
        self.annotate(node, keys.OBSERVED, encode_observed(Observed(holders, generation)))

    def annotate(self, node: str, key: str, value: str | None) -> None:
        """Write on a node as a cluster administrator, whom the policies let through; `None` removes what is there."""
        self.api.patch(f"{NODES}/{node}", {"metadata": {"annotations": {key: value}}})

    def delete(self, name: str) -> None:
        """Ask for a pod's deletion."""
        self.api.delete(f"{PODS}/{name}")

    def complete(self, name: str) -> None:
        """Let a pod's containers end well."""
        self.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {EXIT_CODE: "0"}}})


@contextmanager
def at_work(
    installation: Installation,
    settings: Mapping[str, Any] | None = None,
    *,
    more_profiles: Sequence[str] = (),
    more_resources: Sequence[str] = (),
) -> Iterator[GpuCluster]:
    """Have an extender and a scheduler that asks it at work for the length of a `with` block.

    `settings` replace sections of the chart's configuration; pods that ask for `more_resources` reach the extender, too. The
    scheduler also serves the schedulers that `more_profiles` name.
    """
    plane, extender = installation.plane, installation.extender(settings)
    try:
        extender.start()  # beside the scheduler, which takes as long to be ready
        installation.start_scheduler(extender, more_profiles=more_profiles, more_resources=more_resources)
        extender.wait_ready()
        yield GpuCluster(plane, extender)
    finally:
        plane.stop_schedulers()
        extender.stop()


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
