"""What a process can come to believe of a claim, found by letting the product's own caches live through it.

The model stores no caches. Instead it knows, for everything that can be true of a pod, each standing that some process may give
a claim of that pod at that time; whoever acts may act on any of them. Those sets are not written down anywhere: they are what
`ClusterState` and `release` come to in every order in which a watch, a new list and a live read can tell a pod's life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from functools import reduce
from heapq import heappop, heappush
from operator import or_
from typing import Any

from msgspec import structs

from extender.binding.intents import Conflict, Done, GetNode, GetPod, GetPodVersion, Gone, Intent, Reply
from extender.binding.release import ClaimTimers, release
from extender.cluster.objects.kinds import Container, Node, Pod, ResourceRequirements
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from tests.extender.builders import claim, gpus, node, pod
from tests.extender.world import drive
from tests.model.library import Phase, Place
from topology.annotations import keys
from topology.annotations.records import (
    Observed,
    Sharer,
    decode_ledger,
    decode_observed,
    decode_placement,
    encode_ledger,
    encode_observed,
    encode_placement,
)

(GPU,) = gpus("n1", 0)
_GIB = 8
_NEIGHBOUR = Sharer("ml", "neighbour", "main", _GIB)


BITS = {standing: 1 << number for number, standing in enumerate(Standing)}
"""`enum standing` of model.h, but for `CLAIMED`, which comes last: the model knows no ResourceClaims."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One event, and what is true of the pod from then on."""

    phase: Phase
    event: Pod | Node | None
    """A new version of one of the two; `None`: the pod is deleted."""


@dataclass(frozen=True, slots=True)
class Life:
    """What happens to a pod and to the node of its claim, in order; the claim comes second."""

    on: Place
    moments: tuple[Moment, ...]

    def pod_at(self, time: int) -> Pod | None:
        """Return the pod as the API shows it after so many events."""
        versions = [moment.event for moment in self.moments[:time] if not isinstance(moment.event, Node)]
        return versions[-1] if versions else None

    def node_at(self, time: int) -> Node:
        """Return the node as the API shows it after so many events, the claim being among them."""
        return [moment.event for moment in self.moments[:time] if isinstance(moment.event, Node)][-1]

    def next_of(self, kind: type[Pod | Node], time: int) -> int | None:
        """Return after how many events the next one about the pod, or about the node, has happened."""
        times = enumerate(self.moments[time:], start=time + 1)
        return next((later for later, moment in times if isinstance(moment.event, Node) == (kind is Node)), None)

    def truths_since(self, time: int) -> Iterator[tuple[Phase, Place]]:
        """Yield what is true of the pod after so many events, and what comes to be true later."""
        for end in range(time, len(self.moments) + 1):
            bound = any(moment.event.spec.node_name for moment in self.moments[:end] if isinstance(moment.event, Pod))
            yield self.moments[end - 1].phase, self.on if bound else Place.UNBOUND


Version = Callable[[int], Pod | Node]
"""A version of an object, but for its number."""
Chapter = tuple[Phase, Version | None]


def life(on: Place, *chapters: Chapter) -> Life:
    """Return a life of these chapters, with the claim after the first one."""
    phase, _ = chapters[0]
    told = enumerate((chapters[0], (phase, node_version()), *chapters[1:]), start=1)
    return Life(on, tuple(Moment(phase, version(number) if version else None) for number, (phase, version) in told))


def node_version(reports: int = 1, *, held: bool = False, ready: bool = True) -> Version:
    """Return the node with the claim, and what its agent has reported by then."""
    return lambda number: node(
        claims=(claim(GPU, "p"),),
        topology=None,
        held={GPU: "p"} if held else {},
        reports=reports,
        ready=ready,
        version=number,
    )


def pod_version(on: Place = Place.UNBOUND, phase: str = "Pending", **more: Any) -> Version:
    """Return a version of the pod."""
    where = {Place.HERE: "n1", Place.ELSEWHERE: "n2"}.get(on)
    placed = (GPU,) if where else None
    return lambda number: pod("p", 1, on=where, placed=placed, phase=phase, version=number, **more)


PENDING = (Phase.PENDING, pod_version())
LEAVING = (Phase.LEAVING, pod_version(deleting=True))
ENDED = (Phase.ENDED, pod_version(phase="Failed"))
GONE = (Phase.GONE, None)
BOUND = (Phase.RUNNING, pod_version(Place.HERE))


def lives() -> Iterator[Life]:
    """Yield every kind of life, each to its end."""
    for middle in ((), (PENDING,), (LEAVING,), (ENDED,)):
        yield life(Place.UNBOUND, PENDING, *middle, GONE)
    for on in (Place.HERE, Place.ELSEWHERE):
        yield from _lives_on(on)


def _lives_on(on: Place) -> Iterator[Life]:
    bound, running = (Phase.RUNNING, pod_version(on)), (Phase.RUNNING, pod_version(on, "Running", terminated=False))
    # A container that crashed may have started again: its status is always a little old.
    crashed = (Phase.RUNNING, pod_version(on, "Running", terminated=True))
    beginnings = [((bound, running), False), ((bound,), None), ((crashed,), True)]
    for started, terminated in beginnings if on is Place.HERE else beginnings[:1]:
        stopping = (Phase.STOPPING, pod_version(on, "Running", terminated=terminated, deleting=True))
        stopped = (Phase.STOPPED, pod_version(on, "Succeeded", terminated=True))
        killed = (Phase.STOPPED, pod_version(on, "Failed", terminated=True, deleting=True))
        yield life(on, PENDING, *started, stopped, GONE)
        yield life(on, PENDING, *started, stopping, killed, GONE)
        yield from _forced_lives(on, *started)
        yield from _forced_lives(on, *started, stopping)
    silent, doubted = (
        (Phase.RUNNING, node_version(ready=False)),
        (Phase.DOUBTED, pod_version(on, "Failed", terminated=False)),
    )
    yield from _forced_lives(on, bound, running, silent, doubted)
    untold, held, early = (Phase.DOUBTED, pod_version(on, "Failed")), node_version(2, held=True), node_version(2)
    for seen in (held, early):
        yield life(on, PENDING, bound, untold, (Phase.DOUBTED, seen), (Phase.STOPPED, node_version(3)))


def _forced_lives(on: Place, *before: Chapter) -> Iterator[Life]:
    """Yield the lives that are ended by force; the agent's second look may be from before the containers started."""
    phase, held, early = before[-1][0], node_version(2, held=on is Place.HERE), node_version(2)
    deleted, reported = (Phase.GHOST, None), (Phase.REPORTED, node_version(3))
    yield life(on, PENDING, *before, (phase, held), deleted, (Phase.DEAD, held), reported)
    yield life(on, PENDING, *before, deleted, (Phase.GHOST, held), (Phase.DEAD, held), reported)
    yield life(on, PENDING, *before, deleted, (Phase.GHOST, early), (Phase.DEAD, early), reported)


def shared(life: Life) -> Life:
    """Return the same life of a pod with a share of the GPU, of which another pod holds a share all the time."""
    return Life(
        life.on, tuple(replace(moment, event=moment.event and _shared(moment.event)) for moment in life.moments)
    )


def _shared(event: Pod | Node) -> Pod | Node:
    texts = dict(event.metadata.annotations or {})
    if isinstance(event, Node):
        ledger, observed = decode_ledger(texts[keys.LEDGER]), decode_observed(texts[keys.OBSERVED])
        claims = tuple(replace(claim, memory_gib=_GIB) for claim in ledger.claims)
        sharers = [Sharer(who.namespace, who.name, who.container, _GIB) for who in observed.gpus.values()]
        both = Observed({GPU: _NEIGHBOUR}, shared={GPU: (*sharers, _NEIGHBOUR)})
        texts |= {keys.LEDGER: encode_ledger(replace(ledger, claims=claims)), keys.OBSERVED: encode_observed(both)}
    else:
        asked = Container("main", ResourceRequirements({keys.SHARE_RESOURCE: _GIB}))
        event = structs.replace(event, spec=structs.replace(event.spec, containers=[asked]))
        if text := texts.get(keys.PLACEMENT):
            texts[keys.PLACEMENT] = encode_placement(replace(decode_placement(text), memory_gib={"main": _GIB}))
    return structs.replace(event, metadata=structs.replace(event.metadata, annotations=texts))


class Step(IntEnum):
    """What a process does to know more."""

    HEAR_OF_POD = auto()
    HEAR_OF_NODE = auto()
    LIST_PODS = auto()
    LOOK = auto()


Script = tuple[tuple[Step, int], ...]
"""Steps, each with how many events have happened by then; the first is the list that a process starts with."""


class _Process:
    """One process that hears of a life, by the real caches."""

    def __init__(self, life: Life, script: Script) -> None:
        self._life = life
        self._steps = [step for step, _ in script]
        self.now = max(script[0][1], 2)
        self._pod_heard = self._node_heard = self.now
        self._node_shown: int | None = None
        self.state = ClusterState()
        self.state.nodes.replaced([life.node_at(self.now)])
        for step, time in script:
            self._take(step, time)

    def standings(self) -> set[Standing]:
        """Return what it makes of the claim."""
        return {standing for _, standing in self.state.views["n1"].claims}

    def knowledge(self) -> object:
        """Return all that what it does next can depend on, but for the time."""
        pod, known = self.state.pods.get("p"), self.state.nodes.get("n1")
        return (
            self._life.next_of(Pod, self._pod_heard),
            known and known.node.metadata.resource_version,
            pod and (pod.pod.metadata.resource_version, pod.stopped),
            self.state.pods.tombstone("p"),
            self._node_shown,
            frozenset(self.standings()),
            *(self._steps.count(step) for step in (Step.LIST_PODS, Step.LOOK)),
        )

    def next_steps(self) -> Iterator[tuple[Step, int]]:
        """Yield what it can do now or later; it lists and looks once after it has started."""
        for step, kind, heard in (
            (Step.HEAR_OF_POD, Pod, self._pod_heard),
            (Step.HEAR_OF_NODE, Node, self._node_heard),
        ):
            if (time := self._life.next_of(kind, heard)) is not None:
                yield step, max(self.now, time)
        for step, often in ((Step.LIST_PODS, 2), (Step.LOOK, 1)):
            if self._steps.count(step) < often:
                yield from ((step, time) for time in range(self.now, len(self._life.moments) + 1))

    def _take(self, step: Step, time: int) -> None:
        self.now = max(self.now, time)
        match step:
            case Step.HEAR_OF_POD:
                self._hear_of_pod()
            case Step.HEAR_OF_NODE:
                self._node_heard = self._life.next_of(Node, self._node_heard) or 0
                self.state.nodes.changed(self._life.node_at(self._node_heard))
            case Step.LIST_PODS:
                self._pod_heard = time
                found = self._life.pod_at(time)
                self.state.pods.replaced([found] if found else [])
                self.state.refresh()
            case Step.LOOK:
                self._look()

    def _hear_of_pod(self) -> None:
        """Take in the watch's next event."""
        before = self._life.pod_at(self._pod_heard)
        self._pod_heard = self._life.next_of(Pod, self._pod_heard) or 0
        after = self._life.pod_at(self._pod_heard)
        if after is not None:
            self.state.pods.changed(after)
        elif before is not None:
            self.state.pods.deleted(before)

    def _look(self) -> None:
        """Let `release` find out what it can; it gets no write through."""
        for _ in range(2):
            for task in ClaimTimers(orphan_seconds=0.0, unseen_seconds=0.0).due(self.state, 0.0):
                drive(release(self.state, task), self._reply)

    def _reply(self, intent: Intent) -> Reply:
        match intent:
            case GetPod() | GetPodVersion():
                found = self._life.pod_at(self.now)
                return Done(found) if found else Gone()
            case GetNode():
                self._node_shown = self.now
                return Done(self._life.node_at(self.now))
        return Conflict("somebody else was faster")


Beliefs = dict[tuple[Phase, Place], frozenset[Standing]]


def beliefs(told: Iterable[Life] | None = None) -> Beliefs:
    """Return all that can be believed of a claim while each is true of its pod, in all lives or in those that are `told`."""
    table: dict[tuple[Phase, Place], set[Standing]] = {}
    for life in lives() if told is None else told:
        for process in _processes(life):
            standings = process.standings()
            for truth in life.truths_since(process.now):
                table.setdefault(truth, set()).update(standings)
    return {truth: frozenset(standings) for truth, standings in table.items()}


def _processes(life: Life) -> Iterator[_Process]:
    """Yield a process for everything that can be known of a life, and each as early as it can be known."""
    scripts: list[tuple[int, Script]] = [(time, ((Step.LIST_PODS, time),)) for time in range(len(life.moments) + 1)]
    known: set[object] = set()
    while scripts:
        _, script = heappop(scripts)
        process = _Process(life, script)
        knowledge = process.knowledge()
        if knowledge not in known:
            known.add(knowledge)
            yield process
            for step, time in process.next_steps():
                heappush(scripts, (time, (*script, (step, time))))


def masks(believed: Beliefs) -> list[list[int]]:
    """Return the table as the model wants it."""
    return [
        [reduce(or_, (BITS[standing] for standing in believed.get((phase, place), ())), 0) for place in Place]
        for phase in Phase
    ]
