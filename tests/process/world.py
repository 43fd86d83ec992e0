"""A cluster with replicas of the extender and everything around them, and the words in which faults are told.

When a test is over, so are its faults: whoever was killed is started again, a scheduler binds what still waits, agents look at
their nodes once more, and then the laws must hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json
from benchmarks.simulated.fleet import SimulatedNode, join
from benchmarks.simulated.pod_life import EXIT_CODE
from tests.cluster.gpu_cluster import wants
from tests.cluster.objects import NODES, PODS
from tests.extender.polling import eventually, until
from tests.process import faults, laws
from tests.process.backends import UNAVAILABLE, Backend, Kube, names
from tests.process.replica import Replica
from tests.process.scheduler import Scheduler
from tests.world.kubelets import Kubelets
from topology.annotations import keys
from topology.annotations.records import Ledger, decode_ledger
from topology.annotations.status_codec import decode_status, encode_status

SETTLED_WITHIN_SECONDS = 90.0
"""INV3; INV7's 60 s are part of it."""
TERMINATION_SECONDS = 0.3
_AT_ONCE = 24
_AGENTS_LOOK_EVERY_SECONDS = 0.5
"""Of nodes that somebody waits for; else every five minutes, as in reality."""
_AGENTS_REPORT_EVERY_SECONDS = 300.0


class World:
    """All of one test; entering it starts the kubelets.

    A deleted pod's containers run on for `TERMINATION_SECONDS`.
    """

    def __init__(self, backend: Backend, folder: Path) -> None:
        self.backend = backend
        self.replicas: list[Replica] = []
        self.schedulers: list[Scheduler] = []
        self._markers = count()
        self.spoiled: set[str] = set()
        """Nodes where strangers have written what only we may."""
        self._folder = folder
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self.api = await self._stack.enter_async_context(ApiClient.from_kubeconfig(self.backend.admin))
        await self._stack.enter_async_context(Kubelets(self.api, termination_seconds=TERMINATION_SECONDS))
        self._stack.push_async_callback(_end, asyncio.create_task(self._report()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def join(self, *nodes: SimulatedNode) -> None:
        """Let nodes join."""
        await join(self.api, nodes)

    async def start(self, replicas: int = 1, settings: Mapping[str, Any] | None = None) -> list[Replica]:
        """Start more replicas, and return them when they know the cluster and listen."""
        started = [await self.add(settings) for _ in range(replicas)]
        await asyncio.gather(*(replica.run() for replica in started))
        await until(lambda: all(replica.proxy.hears_of_all for replica in started), 30)
        return started

    async def add(self, settings: Mapping[str, Any] | None = None) -> Replica:
        """Return one more replica, which is not started yet."""
        name = f"replica-{len(self.replicas)}"
        replica = await self._stack.enter_async_context(
            Replica.behind_a_proxy(name, self.backend, self._folder, settings)
        )
        self.replicas.append(replica)
        return replica

    async def caught_up(self, *replicas: Replica) -> None:
        """Wait until these replicas, or all, have heard of every change of nodes so far: they come in order."""
        marker = f"marker-{next(self._markers)}"
        (await self.api.call("POST", NODES, {"metadata": {"name": marker}})).ok()
        for replica in replicas or self.replicas:
            await eventually(partial(replica.node, marker), 30)
        (await self.api.call("DELETE", f"{NODES}/{marker}")).ok()

    def schedule(self, *replicas: Replica, seed: int = 0) -> Scheduler:
        """Let a scheduler ask these replicas, or all, until the test is over."""
        scheduler = Scheduler(self.backend, replicas or self.replicas, seed)
        self.schedulers.append(scheduler)
        self._tasks.append(asyncio.create_task(scheduler.run()))
        return scheduler

    async def submit(self, *pods: Json) -> list[Json]:
        """Create pods, many at once, and return them as they were made."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def create(pod: Json) -> Json:
            async with gate:
                return (await self.api.call("POST", PODS, pod)).ok()

        return list(await asyncio.gather(*map(create, pods)))

    async def pod(self, name: str) -> Json:
        """Return a pod as it is now."""
        return (await self.api.call("GET", f"{PODS}/{name}")).ok()

    async def node_of(self, name: str) -> str | None:
        """Return where a pod is bound."""
        node: str | None = (await self.pod(name))["spec"].get("nodeName")
        return node

    async def is_there(self, name: str) -> bool:
        """Whether there is a pod of that name."""
        return (await self.api.call("GET", f"{PODS}/{name}")).code == 200

    async def is_running(self, name: str) -> bool:
        """Whether a pod is there and its containers run."""
        answer = await self.api.call("GET", f"{PODS}/{name}")
        return answer.code == 200 and answer.body["status"].get("phase") == "Running"

    async def are_running(self, number: int) -> bool:
        """Whether so many pods run."""
        _, pods = await self.backend.objects()
        return sum(_phase(pod) == "Running" for pod in pods) == number

    async def are_bound(self, made: Sequence[Json]) -> bool:
        """Whether all of these are on a node."""
        _, pods = await self.backend.objects()
        bound = {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}
        return all(pod["metadata"]["uid"] in bound for pod in made)

    async def is_empty(self) -> bool:
        """Whether there are no pods any more."""
        return not (await self.backend.objects())[1]

    async def delete(self, name: str, **options: Any) -> None:
        """Ask for a pod's deletion."""
        (await self.api.call("DELETE", f"{PODS}/{name}", options or None)).ok()

    async def remove_node(self, name: str) -> None:
        """Delete a node, with all that it says about itself."""
        self.spoiled.add(name)
        (await self.api.call("DELETE", f"{NODES}/{name}")).ok()

    async def annotate_pod(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a pod; `None` removes one."""
        await self._annotate(f"{PODS}/{name}", annotations)

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a node; `None` removes one."""
        await self._annotate(f"{NODES}/{name}", annotations)

    async def spoil(self, node: str, ledger: str | None) -> None:
        """Write a ledger as somebody who must not; what was wrong there for a while is held against nobody."""
        self.spoiled.add(node)
        await self.annotate_node(node, {keys.LEDGER: ledger})

    async def was_told(self, name: str, reason: str) -> bool:
        """Whether there is an event of that reason about a pod or a node."""
        found = (await self.api.call("GET", "/api/v1/events")).ok()["items"]
        return any(each["reason"] == reason and each["involvedObject"]["name"] == name for each in found)

    async def annotations(self, node: str) -> dict[str, str]:
        """Return a node's annotations."""
        found: dict[str, str] = (await self.api.call("GET", f"{NODES}/{node}")).ok()["metadata"]["annotations"]
        return found

    async def ledger(self, node: str) -> Ledger:
        """Return a node's ledger; an empty one for none."""
        annotations = await self.annotations(node)
        return decode_ledger(annotations[keys.LEDGER]) if keys.LEDGER in annotations else Ledger(0)

    async def has_no_claims(self, node: str) -> bool:
        """Whether a node's ledger is empty."""
        return not (await self.ledger(node)).claims

    async def owners(self, node: str) -> list[str]:
        """Return the names in a node's ledger, one per GPU."""
        return sorted(claim.name for claim in (await self.ledger(node)).claims)

    async def agents_look(self, nodes: Sequence[str]) -> None:
        """Let the agents of some nodes write their next reports."""
        for name in nodes:
            await self.agent_looks(name)

    async def agent_looks(self, node: str, is_ill: Callable[[str], bool] = lambda _: False) -> None:
        """Let a node's agent write its next report, in which GPUs of some UUIDs have fallen ill."""
        status = decode_status((await self.annotations(node))[keys.STATUS])
        gpus = tuple(replace(gpu, healthy=gpu.healthy and not is_ill(gpu.uuid)) for gpu in status.gpus)
        text = encode_status(replace(status, generation=status.generation + 1, gpus=gpus))
        await self.annotate_node(node, {keys.STATUS: text})

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Take the API server away for the length of a block: the double's from the replicas, the real one from everybody."""
        if isinstance(self.backend, Kube):
            apiserver = self.backend.plane.apiserver
            await asyncio.to_thread(apiserver.kill)
            yield
            apiserver.start()
            await asyncio.to_thread(apiserver.wait_ready)
            return
        with ExitStack() as rules:
            for replica in self.replicas:
                rules.enter_context(replica.proxy.meet(lambda _: True, faults.lost))
                for stream in tuple(replica.proxy.streams):
                    stream.cut()
            yield

    async def settle(self, within_seconds: float = SETTLED_WITHIN_SECONDS) -> float:
        """End all faults, wait until the laws hold, and return how long that took."""
        await self._end_faults()
        clock = asyncio.get_running_loop()
        began, looked, wrong = clock.time(), clock.time(), ["nobody has looked yet"]
        scheduler = None if self.schedulers else self.schedule()
        while wrong:
            assert clock.time() < began + within_seconds, "\n".join(wrong[:20])
            await asyncio.sleep(0.05)
            nodes, pods = await self.backend.objects()
            wrong = laws.unsettled(nodes, pods)
            if wrong and clock.time() > looked + _AGENTS_LOOK_EVERY_SECONDS:
                await self.agents_look(sorted(laws.nodes_with_idle_claims(nodes, pods)))
                looked = clock.time()
        if scheduler is not None:
            self.schedulers.remove(scheduler)
            self._tasks.pop().cancel()
        return clock.time() - began

    async def judge(self) -> None:
        """Wait until all is at rest, and fail if anything was wrong on the way."""
        await self.settle()
        _, pods = await self.backend.objects()
        wrong = laws.ever_wrong(self.backend.events, self.replicas, pods, self.spoiled)
        assert not wrong, "\n".join(wrong[:20])

    async def _report(self) -> None:
        """Let all agents report now and then, or their nodes would close."""
        while True:
            await asyncio.sleep(_AGENTS_REPORT_EVERY_SECONDS)
            with suppress(*UNAVAILABLE):
                nodes, _ = await self.backend.objects()
                await self.agents_look([name for name in names(nodes) if keys.STATUS in await self.annotations(name)])

    async def _annotate(self, path: str, annotations: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"annotations": annotations}}
        (await self.api.call("PATCH", path, patch, content_type=MERGE_PATCH)).ok()

    async def _end_faults(self) -> None:
        for replica in self.replicas:
            replica.proxy.forgive()
            if replica.is_running:
                replica.process.thaw()
        if self.replicas and not any(replica.is_running for replica in self.replicas):
            await self.replicas[0].run()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _phase(pod: Json) -> str:
    return str(pod["status"].get("phase"))


def pods(number: int, gpus: int = 1, prefix: str = "p", **spec: Any) -> list[Json]:
    """Return pods for our scheduler, all alike."""
    return [wants(f"{prefix}-{each}", gpus, **spec) for each in range(number)]


def finished_at_once(pod: Json) -> Json:
    """Return the pod such that its containers end as soon as they run."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**pod["metadata"]["annotations"], EXIT_CODE: "0"}}}
