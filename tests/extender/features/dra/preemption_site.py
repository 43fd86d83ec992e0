"""A small cluster of DRA devices where pods preempt others: the API double evicts, and a kubelet ends what is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from benchmarks.simulated.double.api import HttpRequest, answer
from benchmarks.simulated.double.api import Reply as HttpReply
from benchmarks.simulated.double.resources import BUDGETS, PODS
from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.gpu_pods import GpuPod
from extender.features.dra.preemption import Preemptions
from extender.kubernetes.events import Event, EventRecorder
from extender.kubernetes.rest import Request
from tests.dra import Publish, whole_gpus
from tests.extender.features.dra.claim_site import ClaimSite
from topology.annotations import keys

GPUS: Final = 8
"""Of each node."""


class Kept(EventRecorder):
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> bool:
        self.events.append(event)
        return True

    def of(self, reason: str) -> list[tuple[str, str]]:
        """Return pod and message of the events with a reason."""
        return [(getattr(event.about, "name", ""), event.note) for event in self.events if event.reason == reason]


class PreemptionSite(ClaimSite):
    """Nodes of eight GPUs, and one planner that preempts."""

    def __init__(self, nodes: int = 1, publish: Publish = whole_gpus) -> None:
        super().__init__(nodes, Random(0), publish)
        self.recorder = Kept()
        self.kubelet_works = self.is_leader = True
        self.evicted: list[str] = []
        """Names of the pods whose evictions were granted, in their order."""
        self.read_budgets()
        outlook = self.planner.queue.outlook
        is_here = outlook.is_here
        outlook.is_here = lambda: self.is_leader and is_here()
        planner = self.planner
        self.preemptions = Preemptions(
            planner.state,
            planner.dra.demands,
            planner.driver,
            self.send,
            planner.replica.clock,
            planner.metrics,
            self.recorder,
            outlook,
        )

    def running(self, name: str, *counts: int, priority: int = 0, **more: Any) -> None:
        """Create a pod, and let it run."""
        self.create(name, *counts, priority=priority, **more)
        self.settle(2)
        assert self.node_of(name), f"{name} has no room"

    def gang(
        self,
        name: str,
        size: int,
        gpus: int,
        *,
        priority: int = 100,
        numbers: Iterable[int] = (),
        least: int = 0,
        **more: Any,
    ) -> None:
        """Create the pods of a gang, `<name>-<number>`, or some of them; it starts with all, or with the `least` number."""
        annotations = {keys.GROUP: name, keys.GROUP_SIZE: str(size), keys.GANG: "required"}
        annotations |= {keys.GROUP_MIN: str(least)} if least else {}
        for number in numbers or range(size):
            self.create(f"{name}-{number}", gpus, priority=priority, annotations=annotations, **more)

    def budget(self, name: str, allowed: int = 0) -> None:
        """Let a budget allow so many evictions of the pods with the label `app` of this value."""
        spec = {"selector": {"matchLabels": {"app": name}}}
        body = {"metadata": {"name": name}, "spec": spec, "status": {"disruptionsAllowed": allowed}}
        self.world.store.create(BUDGETS, "default", body)
        self.read_budgets()

    def read_budgets(self) -> None:
        """Let the planner hear of budgets."""
        budgets = self.world.store.list(BUDGETS).items
        self.planner.state.budgets.replaced([msgspec.convert(budget, PodDisruptionBudget) for budget in budgets])

    def settle(self, count: int = 6) -> None:
        """Let everybody do so many rounds of work."""

        async def run() -> None:
            for _ in range(count):
                await self.tick()
                self.be_kubelet()
                self.planner.catch_up()
                await self.preemptions.follow()
                await self.preemptions.begin_next()

        asyncio.run(run())

    def be_kubelet(self) -> None:
        """Run the pods that are bound, and end those that are deleted."""
        for pod in self.world.store.list(PODS).items:
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            if "deletionTimestamp" in pod["metadata"]:
                if self.kubelet_works and phase == "Succeeded":
                    self.world.delete(name, 0)
                elif self.kubelet_works:
                    self.world.set_status(name, "Succeeded", "terminated")
            elif pod["spec"].get("nodeName") and phase not in ("Running", "Succeeded"):
                self.world.set_status(name, "Running", "running")

    def waiting(self, name: str) -> GpuPod:
        """Return a pod as the planner has it."""
        pod = self.planner.state.pods.get(self.pod(name).metadata.uid)
        assert pod is not None
        return pod

    async def send(self, request: Request) -> tuple[int, bytes]:
        """Answer a request for an eviction."""
        url = urlsplit(request.path)
        query = dict(parse_qsl(url.query))
        http = HttpRequest(request.method, url.path, query, request.content_type, request.body or b"")
        reply = answer(self.world.store, http)
        assert isinstance(reply, HttpReply)
        if reply.code < 300 and "dryRun" not in query:
            self.evicted.append(url.path.split("/")[-2])
        return reply.code, msgspec.json.encode(reply.body)
