"""Half gangs end, and so do pods whose planned node is gone: by evictions of pods that a controller creates again."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from extender.binding.driver import Driver
from extender.binding.intents import Done, GetPod, Intent, Reply
from extender.cluster.objects.kinds import AffinityRules, NodeAffinityRules, OwnerReference, Pod, Present
from extender.features.queue.evictions import AT_ONCE, PAUSE_SECONDS, SETTLE_SECONDS
from extender.features.queue.feature import Queue
from extender.features.queue.half_gangs import PATIENCE_SECONDS
from extender.features.queue.settings import QueueSettings
from extender.kit.clock import Instant
from extender.kit.keyed_locks import KeyedLocks
from extender.kubernetes.events import Event, EventRecorder
from extender.kubernetes.evictor import EVICTED, NOT_EVICTED, Evictor
from extender.kubernetes.rest import Request
from extender.planning.gangs import place_unit
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.planner import Start
from extender.planning.queue import NodesOfCluster
from extender.telemetry.metrics import Metrics
from tests.extender.builders import at, cluster, node
from tests.extender.features.queue.queued import bound, of_gang, opened, queued, read
from topology.effort import finish

NO_BUDGET, FORBIDDEN = 429, 403


def owned(item: Pod) -> Pod:
    """Return the pod as one of a Job's."""
    owner = OwnerReference("job", controller=True, kind="Job")
    return replace(item, metadata=replace(item.metadata, owner_references=[owner]))


def member(name: str, **more: object) -> Pod:
    """Return a member of a gang that waits in the queue, of a Job."""
    return owned(of_gang(name, **more))  # type: ignore[arg-type]


def pinned(item: Pod) -> Pod:
    """Return the pod as it is once its gate has been opened, if it may go to one node only."""
    now = opened(item, "n1")
    return replace(now, spec=replace(now.spec, affinity=AffinityRules(NodeAffinityRules(Present()))))


class Recorder(EventRecorder):
    """Keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> bool:
        self.events.append(event)
        return True

    def notes(self, reason: str) -> dict[str, str]:
        """Return what pods were told last for this reason."""
        return {event.about.name: event.note for event in self.events if event.reason == reason}


class Looks:
    """A queue that looks for half gangs and stranded pods, every five seconds at most."""

    def __init__(self, *pods: Pod, answer: int = 201, may_evict: bool = True) -> None:
        self.state = cluster(node("n1"), node("n2"), *pods)
        self.seconds = 0.0
        self.live: dict[str, Pod] = {}
        """What the API server has where the watch is behind."""
        self.is_leader = True
        self.answer = answer
        self.evicted: list[str] = []
        self.versions: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """Happens while members are read."""
        self.recorder = Recorder()
        self.metrics = Metrics("digest", Queue.declarations)
        evictor = Evictor(self._send, self.recorder, self._clock)
        self.queue = Queue(
            self.state,
            Driver(self._execute, self._clock, 10.0),
            self._clock,
            self.metrics,
            self.recorder,
            QueueSettings(enabled=True),
            KeyedLocks().plain,
            life_seconds=60.0,
            evictor=evictor if may_evict else None,
        )
        self.queue.leadership = self  # type: ignore[assignment]

    @property
    def is_held(self) -> bool:
        """Whether the Lease is held."""
        return self.is_leader

    async def until(self, seconds: float) -> list[str]:
        """Look again and again; returns who has been evicted since the last call."""
        while self.seconds < seconds:
            await self.queue.look_for_half_gangs()
            self.seconds += 5.0
        await self.queue.look_for_half_gangs()
        evicted, self.evicted = self.evicted, []
        return evicted

    def plan(self) -> None:
        """Begin a plan for what waits."""
        for unit in read(self.state).units:
            nodes = PlannedNodes(NodesOfCluster(self.state), {})
            places = {"n2": self.state.nodes.locations["n2"]}
            assignments = finish(place_unit(nodes, places, unit, enters=True))
            assert finish(self.queue.started.begin(Start(unit, assignments), self.seconds))

    def _clock(self) -> Instant:
        return at(self.seconds)

    async def _execute(self, intent: Intent, timeout_seconds: float) -> Reply:
        assert isinstance(intent, GetPod)
        self.meanwhile()
        return Done(self.live.get(intent.name) or self.state.pods.get(intent.name).pod)  # type: ignore[union-attr]

    async def _send(self, request: Request) -> tuple[int, bytes]:
        body = json.loads(request.body or b"")
        self.evicted.append(body["metadata"]["name"])
        self.versions.append(body["deleteOptions"]["preconditions"]["resourceVersion"])
        return self.answer, b'{"message": "no"}'


def half_gang(size: int = 2) -> list[Pod]:
    """Return a gang of which all but the last member are bound."""
    names = [f"p{number}" for number in range(size)]
    return [*(bound(member(name, size=size), "n1") for name in names[:-1]), member(names[-1], size=size)]


async def test_the_bound_members_of_a_half_gang_are_evicted() -> None:
    """After a minute, in the version in which they are known, with an event, and counted."""
    looks = Looks(*half_gang(3))
    assert await looks.until(PATIENCE_SECONDS - 5) == []
    assert await looks.until(PATIENCE_SECONDS) == ["p0", "p1"]
    assert looks.versions == ["3", "3"]
    why = "only 2 of the 3 pods that its gang needs have been bound for 60 s, and the others have no plan"
    assert looks.recorder.notes(EVICTED) == {"p0": f"evicted: {why}", "p1": f"evicted: {why}"}
    assert b'gputopo_queue_evictions_total{answer="evicted",cause="half-gang"} 2.0' in looks.metrics.exposition()


async def test_a_gated_pod_is_never_evicted() -> None:
    """A Job would count it as failed, and it holds nothing."""
    looks = Looks(*half_gang(4))
    assert "p3" not in await looks.until(1000)


async def test_members_that_wait_in_vain_for_their_node_go_before_bound_ones() -> None:
    """Their successors may find a place beside the others; they try another node first."""
    members = bound(member("a", size=3), "n1"), opened(member("b", size=3), "n1"), member("c", size=3)
    looks = Looks(*members)
    assert await looks.until(PATIENCE_SECONDS) == ["b"]
    assert looks.state.memory.setbacks.away("", "ml/job", looks.seconds) == ["n1"]
    looks.state.pods.deleted(members[1])
    assert await looks.until(PATIENCE_SECONDS + 5) == ["a"]


async def test_pods_without_a_controller_are_only_reported() -> None:
    """Nobody would create them again."""
    looks = Looks(bound(of_gang("a"), "n1"), of_gang("b"))
    assert await looks.until(1000) == []
    assert looks.recorder.notes(NOT_EVICTED)["a"].endswith("it is not: no controller creates it again; delete it")


async def test_pods_that_the_queue_has_not_started_are_only_reported() -> None:
    """Somebody has opened their gate, or bound them."""
    item = member("a")
    somebodys = replace(item, spec=replace(item.spec, scheduling_gates=None, node_name="n1"))
    looks = Looks(somebodys, member("b"))
    assert await looks.until(1000) == []
    assert looks.recorder.notes(NOT_EVICTED)["a"].endswith("it is not: the queue has not started it; delete it")


async def test_a_gang_is_not_ended_while_a_plan_for_it_is_carried_out() -> None:
    """Nor when the plan was begun while its members were read."""
    looks = Looks(*half_gang())
    looks.plan()
    assert await looks.until(PATIENCE_SECONDS) == []
    late = Looks(*half_gang())
    await late.until(PATIENCE_SECONDS - 5)
    late.meanwhile = late.plan
    assert await late.until(PATIENCE_SECONDS) == []


async def test_only_the_holder_of_the_lease_evicts() -> None:
    """It looks for a minute first. A replica that loses the Lease in between evicts nobody."""
    looks = Looks(*half_gang())
    looks.is_leader = False
    assert await looks.until(1000) == []
    looks.is_leader = True
    assert await looks.until(1000 + PATIENCE_SECONDS - 5) == []

    def lose() -> None:
        looks.is_leader = False

    looks.meanwhile = lose
    assert await looks.until(1000 + PATIENCE_SECONDS) == []


async def test_a_replica_that_holds_the_lease_again_looks_for_another_minute() -> None:
    """Gangs may have been whole in between."""
    looks = Looks(*half_gang())
    await looks.until(PATIENCE_SECONDS - 5)
    looks.is_leader = False
    await looks.until(100)
    looks.is_leader = True
    assert await looks.until(100 + PATIENCE_SECONDS - 5) == []
    assert await looks.until(100 + PATIENCE_SECONDS) == ["p0"]


async def test_a_gang_that_is_whole_on_the_api_server_is_not_ended() -> None:
    """The watch is behind."""
    looks = Looks(*half_gang())
    looks.live["p1"] = bound(member("p1"), "n1")
    assert await looks.until(1000) == []


async def test_of_an_elastic_gang_so_many_members_are_read_that_it_is_half_for_sure() -> None:
    """It needs one more of the two that wait: neither may be bound."""
    members = [member(f"p{number}", size=3, least=2) for number in range(3)]
    looks = Looks(bound(members[0], "n1"), *members[1:])
    looks.live["p2"] = bound(members[2], "n1")
    assert await looks.until(1000) == []


async def test_a_gang_is_ended_a_few_pods_at_a_time() -> None:
    """The API server, and people, have other things to do."""
    looks = Looks(*half_gang(AT_ONCE + 3))
    await looks.until(PATIENCE_SECONDS - 5)
    assert len(await looks.until(PATIENCE_SECONDS)) == AT_ONCE


def _in_group(group: str, priority: int) -> list[Pod]:
    return [
        bound(member(f"{group}0", group=group, priority=priority), "n1"),
        member(f"{group}1", group=group, priority=priority),
    ]


async def test_one_gang_ends_after_the_other_the_least_important_first() -> None:
    """Its GPUs may be all that the others miss."""
    low, high = _in_group("low", 1), _in_group("high", 2)
    looks = Looks(*low, *high)
    assert await looks.until(PATIENCE_SECONDS) == ["low0"]
    looks.state.pods.deleted(low[0])
    assert await looks.until(PATIENCE_SECONDS + SETTLE_SECONDS - 5) == []
    assert await looks.until(PATIENCE_SECONDS + SETTLE_SECONDS) == ["high0"]


async def test_a_gang_that_is_half_again_and_again_ends_less_often() -> None:
    """Each end costs its pods what they have done."""
    first, waiting = half_gang()
    looks = Looks(first, waiting)
    assert await looks.until(PATIENCE_SECONDS) == ["p0"]
    looks.state.pods.deleted(first)
    await looks.until(PATIENCE_SECONDS + 5)
    looks.state.pods.changed(bound(member("again"), "n1"))
    assert await looks.until(PATIENCE_SECONDS + PAUSE_SECONDS - 5) == []
    assert await looks.until(PATIENCE_SECONDS + PAUSE_SECONDS) == ["again"]


async def test_a_budget_is_respected_and_asked_again() -> None:
    """The pod hears why it is still there."""
    looks = Looks(*half_gang(), answer=NO_BUDGET)
    assert await looks.until(PATIENCE_SECONDS) == ["p0"]
    assert looks.recorder.notes(NOT_EVICTED)["p0"].endswith("no; it is tried again")
    assert await looks.until(PATIENCE_SECONDS + 10) == ["p0"]


async def test_without_the_right_nothing_is_tried_twice() -> None:
    """The pod hears that, too."""
    looks = Looks(*half_gang(), answer=FORBIDDEN)
    assert await looks.until(1000) == ["p0"]


async def test_where_it_is_switched_off_half_gangs_are_only_counted() -> None:
    """With `queue.evict: false`."""
    looks = Looks(*half_gang(), may_evict=False)
    assert await looks.until(PATIENCE_SECONDS) == []
    assert looks.queue.figures()["queue_half_gangs"] == 1


async def test_a_pod_that_is_pinned_to_a_lost_node_is_evicted() -> None:
    """Once the node has been missing for a minute."""
    item = pinned(owned(queued("p", 2)))
    looks = Looks(item)
    assert await looks.until(1000) == []
    looks.state.nodes.replaced([])
    assert await looks.until(1000 + PATIENCE_SECONDS - 5) == []
    assert await looks.until(1000 + PATIENCE_SECONDS) == ["p"]
    assert looks.recorder.notes(EVICTED) == {"p": "evicted: it is pinned to n1, which does not exist any more"}
    assert b'gputopo_queue_evictions_total{answer="evicted",cause="stranded"} 1.0' in looks.metrics.exposition()


@pytest.mark.parametrize(
    "item",
    [opened(owned(queued("p", 2)), "n1"), owned(queued("p", 2))],
    ids=["not-pinned", "gated"],
)
async def test_other_pods_wait_for_a_lost_node_in_peace(item: Pod) -> None:
    """They can go elsewhere."""
    looks = Looks(item)
    looks.state.nodes.replaced([])
    assert await looks.until(1000) == []


async def test_a_stranded_pod_without_a_controller_is_only_reported() -> None:
    """Nobody would create it again."""
    looks = Looks(pinned(queued("p", 2)))
    looks.state.nodes.replaced([])
    assert await looks.until(1000) == []
    assert looks.recorder.notes(NOT_EVICTED)["p"].startswith("should be evicted, as it is pinned to n1")


async def test_a_node_that_comes_back_keeps_its_pods() -> None:
    """It was created again while it started."""
    looks = Looks(pinned(owned(queued("p", 2))))
    looks.state.nodes.replaced([])
    await looks.until(PATIENCE_SECONDS - 5)
    looks.state.nodes.replaced([node("n1")])
    assert await looks.until(1000) == []
