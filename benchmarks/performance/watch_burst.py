"""A burst of watch events: how late the extender's event loop runs meanwhile, and whether it knows the outcome of each event.

A fifth of the events are agents' reports of nodes, whose GPUs turn sick and well. The others are pods that come, change,
and mostly go. Afterwards filter is asked about every node, and must pass exactly those that are well.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import uuid4

import aiohttp

from benchmarks.performance.verbs import FILTER, about, ask, create
from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.extender_process import RunningExtender
from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

_NAMESPACE = "default"
_SEED = 20_260_101
_STEPS_PER_SECOND = 50
_ASKED_AT_ONCE = 16
"""As many nodes as filter passes on at most, so that its answer says all."""
_SETTLED_WITHIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BurstOutcome:
    """What came of a burst."""

    events: int
    seconds: float
    """The double makes its events in Python: on a slow machine it needs longer than it was given."""
    begun: float
    """On the clock of event loops."""
    ended: float
    settled_seconds: float
    """From the last event until the extender knew everything."""
    missed: int
    """Nodes of which it says something else than the last event did, and pods too many or too few."""


@dataclass(slots=True)
class _Course:
    """The events in order, and what is true after them."""

    store: ObjectStore
    nodes: Sequence[SimulatedNode]
    sick: dict[str, bool] = field(default_factory=dict)

    def events(self, count: int) -> Iterator[None]:
        """Write something each time it is asked."""
        dice = random.Random(_SEED)  # noqa: S311 - a simulation
        uuids = {node.name: tuple(gpu.uuid for gpu in node.topology.gpus) for node in self.nodes}
        living: list[str] = []
        for number in range(count):
            if number % 5 == 0:
                name = dice.choice(self.nodes).name
                self._report(name, uuids[name], number + 1, sick=dice.random() < 0.5)
            elif number % 5 in (1, 2) or not living:
                name = f"burst-{number}"
                self.store.create(PODS, _NAMESPACE, gpu_pod(name, 1 + number % 2, schedulerName="gputopo"))
                living.append(name)
            elif number % 5 == 3:
                label = {"metadata": {"labels": {"seen": str(number)}}}
                self.store.modify(PODS, _NAMESPACE, dice.choice(living), partial(merge_patch, patch=label))
            else:
                place = dice.randrange(len(living))
                living[place], living[-1] = living[-1], living[place]
                self.store.delete(PODS, _NAMESPACE, living.pop(), grace_period_seconds=0)
            yield

    def _report(self, node: str, uuids: Sequence[str], generation: int, *, sick: bool) -> None:
        reasons = ("xid 79",) if sick else ()
        gpus = tuple(GpuStatus(uuid, healthy=not sick, reasons=reasons) for uuid in uuids)
        annotations = {keys.STATUS: encode_status(NodeGpuStatus(generation=generation, gpus=gpus))}
        patch = {"metadata": {"annotations": annotations}}
        self.store.modify(NODES, "", node, partial(merge_patch, patch=patch))
        self.sick[node] = sick


async def burst(
    store: ObjectStore,
    api: ApiClient,
    extender: RunningExtender,
    nodes: Sequence[SimulatedNode],
    events: int,
    seconds: float,
) -> BurstOutcome:
    """Let so many events happen, evenly over so many seconds."""
    course, clock = _Course(store, nodes), asyncio.get_running_loop().time
    happening, begun, done = course.events(events), clock(), 0
    while done < events:
        due = min(events, 1 + int(events * (clock() - begun) / seconds))
        for _ in range(min(due - done, 1 + events // int(_STEPS_PER_SECOND * seconds))):
            next(happening)
            done += 1
        await asyncio.sleep(0 if done < due else 1 / _STEPS_PER_SECOND)
    ended = clock()
    pod = await create(api, gpu_pod("after-the-burst", 1, schedulerName="gputopo"))
    waiting = sum(not each["spec"].get("nodeName") for each in store.list(PODS).items)
    end, missed = time.monotonic() + _SETTLED_WITHIN_SECONDS, -1
    while missed and time.monotonic() < end:
        # Another pod each time: one that is asked about again has come back from where it was sent, and is sent elsewhere.
        pod["metadata"]["uid"] = str(uuid4())
        missed = abs(await _waiting(extender) - waiting) + await _wrong(extender, pod, nodes, course.sick)
    return BurstOutcome(events, round(ended - begun, 2), begun, ended, round(clock() - ended, 2), missed)


async def _wrong(extender: RunningExtender, pod: Json, nodes: Sequence[SimulatedNode], sick: dict[str, bool]) -> int:
    """Return of how many nodes filter says the wrong thing."""
    wrong = 0
    async with aiohttp.ClientSession() as session:
        for start in range(0, len(nodes), _ASKED_AT_ONCE):
            names = [node.name for node in nodes[start : start + _ASKED_AT_ONCE]]
            answer, _ = await ask(session, extender, FILTER, about(pod, names))
            well = {name for name in names if not sick.get(name)}
            wrong += len(well ^ set(answer.get("NodeNames") or ()))
    return wrong


async def _waiting(extender: RunningExtender) -> int:
    """Return of how many waiting pods the extender knows."""
    async with aiohttp.ClientSession() as session, session.get(f"{extender.url}/metrics") as response:
        page = await response.text()
    (line,) = (line for line in page.splitlines() if line.startswith("gputopo_pods_waiting "))
    return int(float(line.split()[1]))
