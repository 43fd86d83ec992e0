"""kube-scheduler as extenders see it: it counts GPUs, asks filter and prioritize, and binds in a task of its own.

What it believes, it believes for ever: a pod that bind said is bound is never looked at again. Each call may reach another
replica; an answer may be lost, and a call may be made twice, at once, to another replica or for another node.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, TypeVar

from benchmarks.simulated.double.resources import Object
from benchmarks.simulated.pod_life import has_ended
from extender.binding.outcome import Bound
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of
from tests.simulation.world.process import SCHEDULER_NAME, Process
from tests.simulation.world.server import NAMESPACE, Server
from tests.world.faults import Fault
from topology.annotations import keys

NAME = SCHEDULER_NAME
_HTTP_TIMEOUT_SECONDS = 5.0

T = TypeVar("T")


class Scheduler:
    """One instance; a second one with the same name is an old leader that does not know it yet."""

    def __init__(
        self,
        name: str,
        server: Server,
        replicas: Sequence[Process],
        storm: Storm,
        trace: Trace,
        random: Random,
    ) -> None:
        self.name = name
        self.assumed: dict[str, tuple[str, Counter[str]]] = {}
        """UID → node and requests of the pods that bind said are bound."""
        self._server = server
        self._replicas = replicas
        self._storm = storm
        self._trace = trace
        self._random = random
        self._not_before: dict[str, float] = {}
        self._binding: dict[asyncio.Task[None], None] = {}

    async def run(self) -> None:
        """Schedule one pod after the other, for ever."""
        while True:
            await asyncio.sleep(self._random.uniform(0.05, 0.4))
            pod = self._next()
            if pod is not None:
                await self._schedule(pod)

    def _next(self) -> Object | None:
        """Return the waiting pod whose turn it is, the one that has waited longest."""
        now = asyncio.get_running_loop().time()
        waiting = [
            pod
            for pod in self._server.pods()
            if pod["spec"]["schedulerName"] == NAME
            and not pod["spec"].get("nodeName")
            and not pod["spec"].get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") == "Pending"
            and pod["metadata"]["uid"] not in self.assumed
            and self._not_before.get(pod["metadata"]["uid"], 0.0) <= now
        ]
        return min(waiting, key=lambda pod: self._not_before.get(pod["metadata"]["uid"], 0.0), default=None)

    async def _schedule(self, pod: Object) -> None:
        """Find a node; the bind then runs by itself."""
        uid = pod["metadata"]["uid"]
        self._put_off(uid, 1.0, 4.0)
        names = self._that_fit(pod)
        if not names:
            return
        try:
            async with asyncio.timeout(_HTTP_TIMEOUT_SECONDS):
                node = await self._choose(pod, names)
        except (ConnectionResetError, TimeoutError):
            return
        if node is None:
            return
        self.assumed[uid] = node, _requests(pod)
        self._spawn(self._bind(pod, node))
        if self._storm.strikes(Fault.WEBHOOK_TWICE, self._random):
            other = self._random.choice((node, *names))
            self._trace.fault(Fault.WEBHOOK_TWICE, self.name, f"{pod['metadata']['name']} to {node} and {other}")
            self._spawn(self._bind(pod, other, echo=True))

    async def _choose(self, pod: Object, names: list[str]) -> str | None:
        name, nominated = pod["metadata"]["name"], pod["status"].get("nominatedNodeName")
        if self._storm.mix.steered and nominated in names:
            alone = await self._call(partial(self._replica().filter, {"Pod": pod, "NodeNames": [nominated]}))
            self._trace.count(f"nominated node: {'taken' if alone.node_names else 'refused'}")
            if alone.node_names:
                return str(nominated)
        result = await self._call(partial(self._replica().filter, {"Pod": pod, "NodeNames": names}))
        passed = list(result.node_names)
        self._trace.note(self.name, f"filter {name}: {' '.join(passed) or result.error or 'no node'}")
        if len(passed) < 2:
            return passed[0] if passed else None
        scores = await self._call(partial(self._replica().prioritize, {"Pod": pod, "NodeNames": passed}))
        by_name = {entry.host: entry.score for entry in scores}
        best = max(by_name.values(), default=0)
        return self._random.choice([name for name in passed if by_name.get(name, 0) == best])

    async def _bind(self, pod: Object, node: str, *, echo: bool = False) -> None:
        """Ask for the Binding; whatever is not a yes lets go of the pod."""
        metadata = pod["metadata"]
        await asyncio.sleep(self._random.uniform(0.0, 0.2) if self._storm.is_over else self._random.expovariate(2.0))
        body = {"PodName": metadata["name"], "PodNamespace": NAMESPACE, "PodUID": metadata["uid"], "Node": node}
        outcome = None
        try:
            async with asyncio.timeout(_HTTP_TIMEOUT_SECONDS):
                outcome = await self._call(partial(self._replica().bind, body))
        except (ConnectionResetError, TimeoutError):
            self._trace.note(self.name, f"bind {metadata['name']} to {node}: no answer")
        if not (echo or isinstance(outcome, Bound)):
            self.assumed.pop(metadata["uid"], None)
            self._put_off(metadata["uid"], 0.5, 3.0)

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Send a webhook's body and receive its answer, if it is not lost on the way back."""
        await asyncio.sleep(self._random.uniform(0.001, 0.01))
        answer = await call()
        await asyncio.sleep(self._random.uniform(0.001, 0.01))
        if self._storm.strikes(Fault.WEBHOOK_LOST, self._random):
            self._trace.fault(Fault.WEBHOOK_LOST, self.name)
            raise ConnectionResetError("answer lost")
        return answer

    def _that_fit(self, pod: Object) -> list[str]:
        """Return the nodes with enough unrequested GPUs or GiB of them, as NodeResourcesFit counts them."""
        used: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for other in self._server.pods():
            uid, node = other["metadata"]["uid"], other["spec"].get("nodeName")
            if node and not has_ended(other):
                used[node] += _requests(other)
            elif not node and uid in self.assumed:
                node, requests = self.assumed[uid]
                used[node] += requests
        return [
            node["metadata"]["name"]
            for node in self._server.nodes()
            if (pinned_to(pod) or node["metadata"]["name"]) == node["metadata"]["name"]
            and all(
                int(node["status"]["allocatable"].get(resource, 0)) - used[node["metadata"]["name"]][resource] >= count
                for resource, count in _requests(pod).items()
            )
        ]

    def _replica(self) -> Process:
        return self._random.choice(self._replicas)

    def _put_off(self, uid: str, low: float, high: float) -> None:
        self._not_before[uid] = asyncio.get_running_loop().time() + self._random.uniform(low, high)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._binding[task] = None
        task.add_done_callback(self._binding.pop)


def pinned_to(pod: Object) -> str | None:
    """Return the only node where a pod may go, as the queue has said it."""
    rules = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = "requiredDuringSchedulingIgnoredDuringExecution" in rules
    return annotations_of(pod).get(keys.PLANNED) if required else None


def gpus_of(pod: Object) -> int:
    """Return how many whole GPUs a pod asks for."""
    return _requests(pod)[keys.GPU_RESOURCE]


def devices_of(pod: Object) -> int:
    """Return how many whole GPUs or MIG slices a pod asks for."""
    asked = _requests(pod)
    return asked.total() - asked[keys.SHARE_RESOURCE]


def profile_of(pod: Object) -> str:
    """Return the profile of the MIG slices that a pod asks for; empty: it asks for none."""
    slices = (name.removeprefix(keys.MIG_PREFIX) for name in _requests(pod) if name.startswith(keys.MIG_PREFIX))
    return next(slices, "")


def share_of(pod: Object) -> int:
    """Return of how many GiB of a GPU a pod asks for a share; 0 for none."""
    return _requests(pod)[keys.SHARE_RESOURCE]


def sharing_class_of(pod: Object) -> str:
    """Return the class whose shares may be beside the pod's."""
    return annotations_of(pod).get(keys.SHARING_CLASS, "")


def _requests(pod: Object) -> Counter[str]:
    asked: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        limits = container["resources"].get("limits", {})
        asked.update({name: int(count) for name, count in limits.items() if _is_ours(name)})
    return asked


def _is_ours(resource: str) -> bool:
    return resource in (keys.GPU_RESOURCE, keys.SHARE_RESOURCE) or resource.startswith(keys.MIG_PREFIX)
