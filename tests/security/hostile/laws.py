"""What must hold for everybody else, whatever one tenant or the holder of one node's token does.

What is limited is CPU time of the extender's main thread; see `cluster`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any

from benchmarks.processes.ticking import TICK_SECONDS
from benchmarks.simulated.double.resources import EVENTS, NODES
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, share_pod
from extender.features.sick_gpus.events import SICK
from tests.security.hostile.cluster import GOOD, Called, Cluster
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus, name_of

Json = dict[str, Any]

ADDED_MS = 250.0
"""CPU that a call of filter or prioritize may cost beyond what it costs on a quiet day."""
PIECE_MS = 50.0
"""CPU that may pass before others have a turn on the event loop."""
UNSURE_MS = 1000.0 * TICK_SECONDS
"""By so much a piece may seem too long on a busy machine; see `held_up_ms`."""
LIVEZ_MS = 1000.0
"""The kubelet's patience."""
MEMORY_MIB = 512
"""The chart's limit of the extender's memory."""
SICK_SECONDS = 60.0
"""From the agent's report to the event about a sick GPU. Waits of this kind take a second, so a busy machine does not matter."""
TRIES = 4
"""Of a bind, and of a filter whose answer may be older than what it should know."""
WARM_UP = 12
PAGES = ("/", "/v1/inspect/nodes?limit=200", "/v1/inspect/pods", "/decisions", "/fragmentation", "/metrics", "/readyz")
OCCUPANT_NAMESPACE = "default"
LITTLE_ADDED = "a call costs others little"
SHORT_PIECES = "no piece of work is long"
LIVEZ_IN_TIME = "/livez answers within a second"
OF_CPU_TIME = frozenset({LITTLE_ADDED, SHORT_PIECES, LIVEZ_IN_TIME})
"""The laws of CPU time. A busy machine needs more of it for the same work."""


class Broken(AssertionError):
    """A law does not hold."""

    def __init__(self, law: str, seen: str) -> None:
        super().__init__(f"{law}: {seen}")
        self.law = law


@dataclass
class Laws:
    """The laws of one cluster, and the worst that was seen of each."""

    cluster: Cluster
    quiet_ms: float = 0.0
    worst: dict[str, float] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _sick: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def _occupied(self) -> list[SimulatedNode]:
        """The honest nodes whose GPUs all belong to one pod."""
        return [node for node in self.cluster.nodes if len(node.used) == len(node.topology.gpus)]

    async def learn(self) -> None:
        """Find out what calls cost on a quiet day."""
        costs = list[float]()
        for _ in range(WARM_UP):
            pod = self._good(gpu_pod, 2)
            costs += [call.cpu_ms for call in await self._asked(pod)]
            self.cluster.delete(pod)
        self.quiet_ms = median(costs)
        await self.of_pages()  # the first of each kind takes longer
        self.cluster.held_up_ms()

    async def of_calls(self) -> None:
        """Hold calls for an honest pod against those of a quiet day, and have /livez answer."""
        pod = self._good(gpu_pod, 2)
        for call in await self._asked(pod):
            self._at_most(LITTLE_ADDED, call.cpu_ms - self.quiet_ms, ADDED_MS, "ms of CPU added")
        self.cluster.delete(pod)
        alive = await self.cluster.get("/livez", health=True)
        if alive.status != 200:
            raise Broken("/livez answers", f"{alive.status} {alive.body!r}")
        self._at_most(LIVEZ_IN_TIME, alive.cpu_ms, LIVEZ_MS, "ms of CPU")

    async def of_the_loop(self) -> None:
        """Hold the longest piece of work since the last look against what others may wait."""
        self._at_most(SHORT_PIECES, self.cluster.held_up_ms(), PIECE_MS + UNSURE_MS, "ms of CPU without a turn")

    async def of_memory(self) -> None:
        """Hold the peak of its memory against the limit."""
        peak = self.cluster.extender.process.peak_memory_bytes() / 2**20
        self._at_most("memory is bounded", peak, MEMORY_MIB, "MiB")

    async def of_pages(self) -> None:
        """Read the pages about all nodes, and that of an honest one."""
        for path in (*PAGES, f"/v1/inspect/nodes/{self.cluster.honest[0].name}"):
            page = await self.cluster.get(path)
            if page.status != 200:
                await asyncio.sleep(1.0)  # the log follows the answer
                log = self.cluster.extender.process.log_tail(100).splitlines()
                errors = [line[-300:] for line in log if "Error" in line]
                raise Broken("one bad node or pod breaks no page of all", f"{path}: {page.status} {errors[-1:]}")

    async def of_pods(self) -> None:
        """Have pods bound that fit: a GPU, a whole machine, a share, and a group that needs one rack."""
        group = {keys.GROUP: f"g{next(self._numbers)}", keys.GROUP_SIZE: "2", keys.GROUP_AFFINITY: "required-rack"}
        members = [self._good(gpu_pod, 8, group) for _ in range(2)]
        every = (self._good(gpu_pod, 1), self._good(gpu_pod, 8), self._good(share_pod, 20), *members)
        for pod in every:
            await self._fits(pod)
        for pod in every:
            self.cluster.end(pod)

    async def of_a_yes(self, pod: Json, names: Sequence[str], passing: Sequence[str] = ()) -> bool:
        """Bind a pod to a node that filter passes, if there is one; returns whether it is bound.

        What it has passed before other pods were bound may be out of date, so it is asked again after a refusal.
        """
        error = ""
        for attempt in range(TRIES):
            passing = passing or await self.cluster.passing(pod, names)
            if not passing:
                return False
            error = await self.cluster.bind(pod, passing[0])
            if not error:
                return True
            passing = ()
            await asyncio.sleep(0.1 * attempt)
        raise Broken("what filter passes can be bound", f"{pod['metadata']['name'][:40]}: {error}")

    def begin_sickness(self) -> None:
        """Let a GPU of an honest pod fall sick; `of_sickness` waits for the events."""
        number = len(self._sick)
        node = self._occupied[number % len(self._occupied)]
        gpus, since = [gpu.uuid for gpu in node.topology.gpus], int(time.time())
        uuid = gpus[number // len(self._occupied) % len(gpus)]
        sick = GpuStatus(uuid, healthy=False, reasons=("xid 79",), sick_since=since)
        status = encode_status(NodeGpuStatus(since, (sick, *(GpuStatus(gpu) for gpu in gpus if gpu != uuid))))
        heard = len(self._sick_events(node.name, uuid))
        self.cluster.patch(NODES, "", node.name, {"metadata": {"annotations": {keys.STATUS: status}}})
        self._sick.append(asyncio.create_task(self._hears(node.name, uuid, heard)))

    async def of_sickness(self) -> None:
        """Wait for the events of all GPUs that have fallen sick so far: each comes within a minute."""
        await asyncio.gather(*self._sick)

    async def _hears(self, node: str, gpu: str, heard: int) -> None:
        began = time.monotonic()
        while len(self._sick_events(node, gpu)) == heard:
            waited = time.monotonic() - began
            if waited > SICK_SECONDS:
                page = (await self.cluster.get("/metrics")).body.decode()
                dropped = next(line for line in page.splitlines() if line.startswith("gputopo_events_dropped"))
                raise Broken("an event tells of a sick GPU", f"none within {SICK_SECONDS:.0f} s; {dropped}")
            await asyncio.sleep(0.2)
        self._at_most("an event tells of a sick GPU", time.monotonic() - began, SICK_SECONDS, "s")

    async def _fits(self, pod: Json) -> None:
        for attempt in range(TRIES):
            if await self.of_a_yes(pod, self.cluster.names):
                return
            await asyncio.sleep(0.2 * attempt)
        answer = (await self.cluster.ask("filter", pod, [node.name for node in self.cluster.honest])).body
        why = Counter(
            [*(answer.get("FailedNodes") or {}).values(), *(answer.get("FailedAndUnresolvableNodes") or {}).values()]
        )
        request = pod["spec"]["containers"][0]["resources"]["limits"], pod["metadata"]["annotations"]
        raise Broken("a pod that fits is bound", f"{request} fits on no honest node: {why.most_common(3)}")

    async def _asked(self, pod: Json) -> list[Called]:
        filtered = await self.cluster.ask("filter", pod, self.cluster.names)
        passing = (filtered.body.get("NodeNames") or []) if filtered.status == 200 else []
        if not passing:
            raise Broken("a pod that fits is bound", f"{filtered.status} {str(filtered.body)[:300]}")
        scored = await self.cluster.ask("prioritize", pod, passing)
        return [filtered, scored]

    def _good(self, make: Any, *request: Any) -> Json:
        return self.cluster.create(GOOD, make(f"good-{next(self._numbers)}", *request))

    def _sick_events(self, node: str, gpu: str) -> list[Json]:
        every = self.cluster.store.list(EVENTS, OCCUPANT_NAMESPACE).items
        ours = (one for one in every if one["reason"] == SICK and one["involvedObject"]["name"] == f"{node}-occupant")
        return [one for one in ours if name_of(gpu, None) in one["message"]]

    def _at_most(self, law: str, value: float, limit: float, unit: str) -> None:
        self.worst[law] = max(value, self.worst.get(law, 0.0))
        if value > limit:
            raise Broken(law, f"{value:.0f} {unit}, at most {limit:.0f}")
