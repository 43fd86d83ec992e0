"""The product itself under the model's schedule: real `bind` and `release` generators, real caches, the API double.

One machine of two GPUs. Every actor is a process of its own with one piece of the protocol under way, and each step is one thing
that the model knows, too: a request is executed, lost or held up, a pod changes, a process hears what has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.simulated.double.resources import NODES, Object
from extender.binding.intents import (
    AskForLook,
    BindPod,
    Done,
    FencePod,
    GetPod,
    Intent,
    NoAnswer,
    Refused,
    Reply,
    SwapLedger,
)
from extender.binding.release import ClaimTimers, release
from extender.cluster.objects.kinds import Pod
from tests.extender.world import Replica, World
from tests.model.library import NOBODY, PODS, Event, Phase, Setup
from topology.annotations import keys
from topology.annotations.records import Holder, Observed, Sharer, decode_ledger, decode_placement, encode_observed
from topology.formats.catalog import machine
from topology.node.sharing import Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

MACHINE, UNIT_GIB = "rtx-3090-2", 8
GPUS = tuple(gpu.uuid for gpu in machine(MACHINE, host="n1").gpus)
BEGINS = 2
"""How often each actor begins, at most."""


def mask_of(uuids: Iterable[str]) -> int:
    """Return the model's mask of these GPUs."""
    return sum(1 << GPUS.index(uuid) for uuid in set(uuids))


@dataclass(slots=True)
class Part:
    """One actor: a process, and what it is about."""

    number: int
    replica: Replica
    begun: int = 0
    steps: Generator[Intent, Reply, object] | None = None
    intent: Intent | None = None
    """What it waits for."""
    seen: Pod | None = None
    """What a look has found that it has not heard of yet."""
    pod: int = 0
    checks: bool = False
    """It looks after a Binding that did not succeed."""
    posted: str = ""
    """The version that its last Binding named."""
    was_refused: bool = False
    """It fences because that Binding was refused."""
    rests_on: str = ""
    """The ledger that it acts on."""
    heard: int = 0
    """The newest write that its caches know of."""

    def hear(self) -> None:
        """Let its watches catch up."""
        self.replica.catch_up()
        self.heard = self.replica.world.store.resource_version


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that can happen."""

    name: str
    take: Callable[[], None]
    actor: int = NOBODY
    event: Event | None = None
    """What the model calls it, where nobody in particular acts; `None`: nothing that the model knows has changed."""
    pod: int = 0


def _about(part: Part) -> str:
    return f" ({type(part.intent).__name__})"


class Product:
    """A cluster of some pods on one node, binders and one reconciler."""

    def __init__(self, setup: Setup, *, sickness: bool = False) -> None:
        self.world = World("n1", machine_name=MACHINE)
        self._setup = setup
        self.names = [f"p{number}" for number in range(setup.pods)]
        self.uids = [self._add_pod(number) for number in range(setup.pods)]
        self.phases = [Phase.PENDING] * setup.pods
        self.gpus = [0] * setup.pods
        """Masks: with what each pod is or was bound."""
        if setup.units:
            self.world.tell("n1", self._status(0))
        self.binders = setup.binders
        self.parts = [Part(number, Replica(self.world)) for number in range(setup.binders + 1)]
        self.late: list[tuple[Intent, bool]] = []
        """Requests on their way that nobody waits for, and whether they are strays."""
        self._sickness = sickness
        self._reports = 0
        self._asked = 0
        """How often an agent was asked for a look, which the model has whenever it likes."""

    def _add_pod(self, number: int) -> str:
        setup, name = self._setup, self.names[number]
        metadata = self.world.add_pod(
            name,
            setup.wanted[number],
            setup.shares[number] * UNIT_GIB,
            **{keys.SHARING_CLASS: f"class-{setup.classes[number]}"} if setup.shares[number] else {},
        )["metadata"]
        uid: str = metadata["uid"]
        return uid

    def course(self) -> Iterator[Step]:
        """Yield all that goes well and goes on, first what is under way; it comes to an end."""
        for part in self.parts:
            if part.intent is not None:
                yield Step(f"{part.number} is answered{_about(part)}", partial(self._answer, part), part.number)
        for part in sorted(self.parts, key=lambda part: part.begun):
            if part.steps is None and part.heard < self.world.store.resource_version:
                yield Step(f"{part.number} hears", part.hear)
            if part.steps is None and part.begun < BEGINS:
                yield from self._beginnings(part)

    def mishaps(self) -> Iterator[Step]:
        """Yield all else that can happen."""
        for part in self.parts:
            yield from self._mishaps(part)
        for number, (intent, is_stray) in enumerate(self.late):
            if not self._has_lost_its_ground(intent):
                event = self._late_event(intent, is_stray)
                pod = self.uids.index(intent.uid) if isinstance(intent, BindPod | FencePod) else 0
                yield Step(f"{type(intent).__name__} arrives late", partial(self._arrive, number), event=event, pod=pod)
        for pod in range(len(self.names)):
            yield from self._pod_steps(pod)
        if self._sickness and Phase.DEAD not in self.phases:
            yield Step("a GPU falls sick", partial(self._report, GPUS[0]))
            yield Step("it is well again", self._report)

    @property
    def writes(self) -> int:
        """How much that the model knows of has been written so far."""
        return self.world.store.resource_version - self._asked

    @property
    def ledger(self) -> str:
        """The text of the ledger as it is."""
        return self._annotations()[keys.LEDGER]

    def owners(self, text: str) -> int:
        """Return a ledger as the model has it."""
        owners = 0
        for claim in decode_ledger(text).claims:
            owners |= 1 << PODS * GPUS.index(claim.gpu) + self.uids.index(claim.uid)
        return owners

    def can_commit(self, intent: Intent) -> bool:
        """Whether the server would do what a write says, as things are."""
        match intent:
            case SwapLedger():
                return intent.expected == self.ledger
            case BindPod() | FencePod():
                found = self._find(self.uids.index(intent.uid))
                return found is not None and found["metadata"]["resourceVersion"] == intent.resource_version
        return False

    def stray(self, part: Part) -> int | None:
        """Return the pod of a fence that rests on a ledger which has changed: to the model it is a stranger's write."""
        if isinstance(part.intent, FencePod) and part.rests_on != self.ledger:
            return self.uids.index(part.intent.uid)
        return None

    def _find(self, pod: int) -> Object | None:
        found = self.world.find(self.names[pod])
        return found if found and found["metadata"]["uid"] == self.uids[pod] else None

    def _annotations(self) -> dict[str, str]:
        annotations: dict[str, str] = self.world.store.get(NODES, "", "n1")["metadata"]["annotations"]
        return annotations

    def _has_lost_its_ground(self, intent: Intent) -> bool:
        """Whether a claim was planned on a health report that is no longer the newest: the model knows of no such thing."""
        planned_on = intent.status if isinstance(intent, SwapLedger) else None
        return planned_on not in (None, self._annotations().get(keys.STATUS))

    def _beginnings(self, part: Part) -> Iterator[Step]:
        if part.number >= self.binders:
            if ClaimTimers(orphan_seconds=0.0, unseen_seconds=0.0).due(part.replica.state, 0.0):
                yield Step(f"{part.number} begins", partial(self._begin_release, part), part.number)
            return
        for pod in (part.number, *(other for other in range(len(self.names)) if other != part.number)):
            yield Step(f"{part.number} begins with {self.names[pod]}", partial(self._begin, part, pod), part.number)

    def _begin(self, part: Part, pod: int) -> None:
        part.begun += 1
        part.pod, part.checks, part.was_refused = pod, False, False
        part.steps = part.replica.start_bind(self.names[pod], uid=self.uids[pod])
        self._go_on(part, None)

    def _begin_release(self, part: Part) -> None:
        part.begun += 1
        state = part.replica.state
        part.rests_on = state.views["n1"].payloads.ledger.text or ""
        (task,) = ClaimTimers(orphan_seconds=0.0, unseen_seconds=0.0).due(state, 0.0)
        part.steps = release(state, task)
        self._go_on(part, None)

    def _answer(self, part: Part) -> None:
        """Execute the request; a first look at a pod that can be bound is heard of later."""
        assert part.intent is not None
        if part.seen is not None:
            self._go_on(part, Done(part.seen))
            return
        reply = self._execute(part.intent)
        is_first_look = part.number < self.binders and isinstance(part.intent, GetPod) and not part.checks
        if (
            is_first_look
            and isinstance(reply, Done)
            and isinstance(reply.value, Pod)
            and self._is_bindable(part, reply.value)
        ):
            part.seen = reply.value
        else:
            self._go_on(part, reply)

    def _is_bindable(self, part: Part, found: Pod) -> bool:
        return found.metadata.uid == self.uids[part.pod] and self.phases[part.pod] is Phase.PENDING

    def _go_on(self, part: Part, reply: Reply | None) -> None:
        """Hand the actor its reply, and note what it waits for then."""
        assert part.steps is not None
        match part.intent, reply:
            case BindPod() as intent, _:
                part.checks, part.posted = True, intent.resource_version
            case GetPod(), Done(Pod() as found):
                part.was_refused = part.checks and found.metadata.resource_version == part.posted
                part.checks = False
            case SwapLedger() as intent, Done():
                part.rests_on = intent.ledger
        part.seen = None
        try:
            part.intent = next(part.steps) if reply is None else part.steps.send(reply)
        except StopIteration:
            part.intent = part.steps = None
        if part.number < self.binders:
            match part.intent:
                case SwapLedger() as swap:
                    part.rests_on = swap.expected or ""
                case FencePod() if not part.was_refused:
                    part.rests_on = part.replica.state.views["n1"].payloads.ledger.text or ""

    def _mishaps(self, part: Part) -> Iterator[Step]:
        name, actor, about = f"{part.number}", part.number, _about(part)
        if part.intent is not None and part.seen is None:
            yield Step(f"{name} loses its request{about}", partial(self._go_on, part, NoAnswer("lost")), actor)
            yield Step(f"{name} loses the answer{about}", partial(self._lose_answer, part), actor)
            if isinstance(part.intent, SwapLedger | BindPod | FencePod):
                yield Step(f"{name} waits in vain{about}", partial(self._hold_up, part, kill=False), actor)
                yield Step(
                    f"{name} is killed, its request held up{about}", partial(self._hold_up, part, kill=True), actor
                )
            if isinstance(part.intent, BindPod):
                yield Step(f"{name} is refused{about}", partial(self._go_on, part, Refused(403, "a policy")), actor)
        if part.steps is not None:
            yield Step(f"{name} is killed", partial(self._kill, part), actor)
            if part.heard < self.world.store.resource_version:
                yield Step(f"{name} hears in between", part.hear)

    def _execute(self, intent: Intent) -> Reply:
        before = self.world.store.resource_version
        reply = self.world.execute(intent)
        if isinstance(intent, AskForLook):
            self._asked += self.world.store.resource_version - before
        self._notice()
        return reply

    def _lose_answer(self, part: Part) -> None:
        assert part.intent is not None
        self._execute(part.intent)
        self._go_on(part, NoAnswer("lost"))

    def _hold_up(self, part: Part, *, kill: bool) -> None:
        assert part.intent is not None
        self.late.append((part.intent, self.stray(part) is not None))
        if kill:
            self._kill(part)
        else:
            self._go_on(part, NoAnswer("timed out"))

    def _kill(self, part: Part) -> None:
        """Let the process die; another one starts in its place and knows what the API knows."""
        assert part.steps is not None
        part.steps.close()
        part.steps = part.intent = part.seen = None
        part.replica = Replica(self.world)

    def _late_event(self, intent: Intent, is_stray: bool) -> Event | None:
        if not self.can_commit(intent):
            return None
        if is_stray:
            return Event.TOUCH
        return {SwapLedger: Event.LATE_SWAP, BindPod: Event.LATE_BINDING}.get(type(intent), Event.LATE_FENCE)

    def _arrive(self, number: int) -> None:
        self.world.execute(self.late.pop(number)[0])
        self._notice()

    def _notice(self) -> None:
        """Take note of the pods that have been bound."""
        for pod, phase in enumerate(self.phases):
            found = self._find(pod)
            if phase is Phase.PENDING and found and found["spec"].get("nodeName"):
                self.phases[pod] = Phase.RUNNING
                record = decode_placement(found["metadata"]["annotations"][keys.PLACEMENT])
                self.gpus[pod] = mask_of(gpu for gpus in record.containers.values() for gpu in gpus)

    def _pod_steps(self, pod: int) -> Iterator[Step]:
        world, name = self.world, self.names[pod]

        def step(words: str, event: Event, phase: Phase, change: Callable[[], object]) -> Step:
            def take() -> None:
                change()
                self.phases[pod] = phase

            return Step(f"{name} {words}", take, event=event, pod=pod)

        match self.phases[pod]:
            case Phase.PENDING:
                yield step("is touched", Event.TOUCH, Phase.PENDING, partial(world.touch, name))
                yield step("is deleted", Event.DELETE, Phase.GONE, partial(world.delete, name))
            case Phase.RUNNING | Phase.STOPPING as phase:
                ended = "Succeeded" if phase is Phase.RUNNING else "Failed"
                yield step("stops", Event.STOP, Phase.STOPPED, partial(world.set_status, name, ended, "terminated"))
                yield step("is deleted by force", Event.FORCE_DELETE, Phase.GHOST, partial(world.delete, name, 0))
                if phase is Phase.RUNNING:
                    yield step("is deleted", Event.DELETE, Phase.STOPPING, partial(world.delete, name))
            case Phase.STOPPED:
                yield step("is removed", Event.DELETE, Phase.GONE, partial(world.delete, name, 0))
            case Phase.GHOST:
                yield step("stops unseen", Event.STOP, Phase.DEAD, lambda: None)
            case Phase.DEAD:
                yield step("is not reported", Event.REPORT, Phase.REPORTED, self._report)

    def _report(self, *sick: str) -> None:
        """Let the agent write what is true: who holds what, and what is sick."""
        self._reports += 1
        held: dict[str, Holder] = {}
        shared: dict[str, tuple[Sharer, ...]] = {}
        for pod, phase in enumerate(self.phases):
            for gpu in GPUS if phase in (Phase.RUNNING, Phase.STOPPING, Phase.GHOST) else ():
                if self.gpus[pod] & mask_of([gpu]):
                    held[gpu] = Holder("default", self.names[pod], "main")
                    if units := self._setup.shares[pod]:
                        sharer = Sharer("default", self.names[pod], "main", units * UNIT_GIB)
                        shared[gpu] = (*shared.get(gpu, ()), sharer)
        self.world.annotate_node("n1", observed=encode_observed(Observed(held, shared=shared)))
        self.world.tell("n1", self._status(self._reports, *sick))

    def _status(self, generation: int, *sick: str) -> NodeGpuStatus:
        """Return what the agent says of the GPUs; it names all of them where they are shared."""
        setup, named = self._setup, GPUS if self._setup.units else sick
        share_gib = setup.units * UNIT_GIB if setup.units else None
        plugin = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(setup.shareable))
        return NodeGpuStatus(
            generation,
            tuple(GpuStatus(gpu, healthy=gpu not in sick, share_gib=share_gib) for gpu in named),
            device_plugin=plugin if setup.units else None,
        )
