"""A pod has claims on one node: those of an earlier bind are fenced and dropped before a bind to another node claims."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.binding.intents import (
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetNode,
    Gone,
    Intent,
    NoAnswer,
    Refused,
    Reply,
    SwapLedger,
)
from extender.binding.outcome import Bound, Failure, NotBound
from extender.verbs.filter_prioritize import filter_nodes
from extender.verbs.pod_context import CLAIMED_ELSEWHERE
from extender.verbs.wire import ExtenderArgs, ExtenderFilterResult
from tests.extender.binding.test_protocol import DELIVERIES
from tests.extender.binds import failure_of, kinds
from tests.extender.exploration import Choices, explore
from tests.extender.four_gpus import damage
from tests.extender.world import (
    Crash,
    Replica,
    World,
    delay_request,
    deliver,
    drive,
    lose_request,
    meddle_before,
)
from tests.world.faults import Fault
from tests.world.http_faults import RequestFault

NODES = ("n1", "n2", "n3")
POLICY = Refused(403, "403: policy require-cost-center")
CANNOT = "the pod has claims on another node, which cannot be dropped: "


def tried(meddle: Callable[[World, type[Intent]], Callable[[Intent], Reply]] = lose_request) -> tuple[World, Replica]:
    """Return a world whose pod p has claims on n1, since nobody knows the outcome of its Binding."""
    world = World(*NODES)
    world.add_pod("p")
    replica = Replica(world)
    assert failure_of(drive(replica.start_bind("p"), meddle(world, BindPod))) is Failure.NO_ANSWER
    assert held(world) == ["n1"]
    world.intents.clear()
    return world, replica


def bind_in_vain(
    world: World, node: str, meddle: Callable[[World, type[Intent]], Callable[[Intent], Reply]] = lose_request
) -> None:
    """Let another process claim for p; the outcome of its Binding is not known."""
    assert failure_of(drive(Replica(world).start_bind("p", node), meddle(world, BindPod))) is Failure.NO_ANSWER


def held(world: World) -> list[str]:
    return [name for name in NODES if world.claims(name)]


def answering(world: World, kind: type[Intent], reply: Reply, node: str = "") -> Callable[[Intent], Reply]:
    """Give this reply to each intent of a kind, or to each about one node."""

    def execute(intent: Intent) -> Reply:
        is_meant = isinstance(intent, kind) and (not node or getattr(intent, "node", None) == node)
        return reply if is_meant else world.execute(intent)

    return execute


def offered(replica: Replica, *names: str) -> ExtenderFilterResult:
    """Ask filter where the pod p may go."""
    pod = next(known.pod for known in replica.state.pods if known.pod.metadata.name == "p")
    return filter_nodes(replica.state, ExtenderArgs(pod, node_names=[*names]), replica.clock())


def test_claims_on_another_node_are_fenced_and_dropped_before_new_ones_are_made() -> None:
    """At no moment does the pod claim more than it asks for."""
    world, replica = tried()
    steps = replica.start_bind("p", "n2")

    def execute(intent: Intent) -> Reply:
        reply = world.execute(intent)
        assert len(held(world)) <= 1
        return reply

    assert isinstance(drive(steps, execute), Bound)
    assert kinds(world) == ["GetPod", "FencePod", "SwapLedger", "SwapLedger", "BindPod"]
    assert [intent.node for intent in world.intents if isinstance(intent, SwapLedger)] == ["n1", "n2"]
    assert held(world) == ["n2"]


def test_a_binding_that_arrives_after_its_claim_was_dropped_arrives_in_vain() -> None:
    """The fence was before; the pod that has the GPUs by then keeps them."""
    world, replica = tried(delay_request)
    world.add_pod("q")
    replica.catch_up()

    def others_come() -> None:
        assert isinstance(Replica(world).bind("q", "n1"), Bound)
        world.deliver_late()

    assert isinstance(drive(replica.start_bind("p", "n2"), meddle_before(world, BindPod, others_come)), Bound)
    assert world.placed("q") == set(world.claims("n1"))
    assert world.placed("p") == set(world.claims("n2"))


def test_a_binding_that_arrives_before_the_fence_is_believed() -> None:
    """Nothing is dropped, and nothing claimed."""
    world, replica = tried(delay_request)
    outcome = drive(replica.start_bind("p", "n2"), meddle_before(world, FencePod, world.deliver_late))
    assert failure_of(outcome) is Failure.BOUND_ELSEWHERE
    assert held(world) == ["n1"]


def test_a_claim_that_a_rival_renews_after_the_fence_survives_until_the_next_fence() -> None:
    """The ledger is replaced as it was before the fence: the rival's Binding rests on a later version of the pod."""
    world, replica = tried()
    drops: list[type[Reply]] = []

    def execute(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, FencePod) and not drops:
            bind_in_vain(world, "n1", delay_request)
            replica.catch_up()
        if isinstance(intent, SwapLedger) and intent.node == "n1":
            drops.append(type(reply))
        if isinstance(intent, SwapLedger) and intent.node == "n2":
            world.deliver_late()
        return reply

    assert isinstance(drive(replica.start_bind("p", "n2"), execute), Bound)
    assert drops == [Conflict, Done]
    assert held(world) == ["n2"]


def test_claims_on_a_third_node_that_are_heard_of_meanwhile_are_dropped_too() -> None:
    """A rival has made them once the first ones were dropped."""
    world, replica = tried()
    drops = []

    def execute(intent: Intent) -> Reply:
        reply = world.execute(intent)
        if isinstance(intent, SwapLedger):
            drops.append(intent.node)
            if len(drops) == 1:
                bind_in_vain(world, "n3")
                replica.catch_up()
        return reply

    assert isinstance(drive(replica.start_bind("p", "n2"), execute), Bound)
    assert drops == ["n1", "n3", "n2"]
    assert held(world) == ["n2"]


@pytest.mark.parametrize("fate", [RequestFault.LOST_REPLY, Fault.LATE_REQUEST], ids=["written", "under way"])
def test_a_claim_without_an_answer_counts_as_a_claim(fate: RequestFault | Fault) -> None:
    """The node could not be read either, and no watch has told of it; one that is under way arrives in vain."""
    world = World(*NODES)
    world.add_pod("p")
    replica = Replica(world)

    def execute(intent: Intent) -> Reply:
        if isinstance(intent, GetNode):
            return NoAnswer("504: a proxy")
        return deliver(world, fate, intent) if isinstance(intent, SwapLedger) else world.execute(intent)

    assert failure_of(drive(replica.start_bind("p"), execute)) is Failure.NO_ANSWER
    assert isinstance(drive(replica.start_bind("p", "n2"), meddle_before(world, BindPod, world.deliver_late)), Bound)
    assert held(world) == ["n2"]


@pytest.mark.parametrize(
    ("kind", "node", "reply", "words"),
    [
        (FencePod, "", POLICY, POLICY.message),
        (FencePod, "", NoAnswer("504: a webhook"), "504: a webhook"),
        (SwapLedger, "n1", POLICY, POLICY.message),
        (SwapLedger, "n1", NoAnswer("out of time"), "out of time"),
    ],
)
def test_a_bind_refuses_where_older_claims_cannot_be_dropped(
    kind: type[Intent], node: str, reply: Reply, words: str
) -> None:
    """Nothing is claimed, the API server's words are passed on, and the node has done nothing wrong."""
    world, replica = tried()
    outcome = drive(replica.start_bind("p", "n2"), answering(world, kind, reply, node))
    assert outcome == NotBound(Failure.CLAIMS_ELSEWHERE, CANNOT + words)
    assert held(world) == ["n1"]
    (uid,) = {*world.claims("n1").values()}
    assert "n2" not in replica.state.memory.setbacks.away(uid, "", replica.seconds)
    known, found = replica.state.pods.get(uid), world.find("p")
    assert known and found and known.pod.metadata.resource_version == found["metadata"]["resourceVersion"]


@pytest.mark.parametrize("reply", [NoAnswer("504: a proxy"), Gone(), POLICY])
def test_a_bind_refuses_where_the_node_with_older_claims_cannot_be_read_after_a_conflict(reply: Reply) -> None:
    """The next bind tries again with the ledger that the watch has brought by then."""
    world, replica = tried()

    def execute(intent: Intent) -> Reply:
        if isinstance(intent, SwapLedger) and intent.node == "n1":
            return Conflict("another generation")
        return reply if isinstance(intent, GetNode) else world.execute(intent)

    assert failure_of(drive(replica.start_bind("p", "n2"), execute)) is Failure.CONFLICT
    assert held(world) == ["n1"]


def test_a_bind_refuses_where_the_ledger_with_older_claims_is_lost() -> None:
    """What it said is not known for certain until it is rebuilt."""
    world, replica = tried()
    with world.unchecked():
        damage(world, "truncated")
    replica.catch_up()
    assert failure_of(replica.bind("p", "n2")) is Failure.CLAIMS_ELSEWHERE
    assert world.claims("n2") == {}
    replica.reconcile()
    assert isinstance(replica.bind("p", "n2"), Bound)
    assert held(world) == ["n2"]


def test_a_pod_that_vanishes_meanwhile_claims_nothing() -> None:
    """Its fence finds nobody."""
    world, replica = tried()
    outcome = drive(replica.start_bind("p", "n2"), meddle_before(world, FencePod, lambda: world.delete("p")))
    assert failure_of(outcome) is Failure.POD_GONE
    assert world.claims("n2") == {}
    outcome = drive(replica.start_bind("p", "n2"), answering(world, FencePod, Gone()))
    assert failure_of(outcome) is Failure.POD_GONE


@pytest.mark.parametrize("ends", ["bound", "gone"])
def test_a_pod_that_is_bound_or_gone_is_forgotten(ends: str) -> None:
    """Both memories last as long as the pod waits."""
    world, replica = tried()
    state, (uid,) = replica.state, {*world.claims("n1").values()}
    text = state.views["n3"].payloads.ledger.text
    state.memory.doubtful_claims.add(uid, "n3", text)
    state.memory.claim_drops.failed(uid, replica.seconds)
    if ends == "bound":
        assert isinstance(Replica(world).bind("p"), Bound)
    else:
        world.delete("p")
    replica.catch_up()
    assert state.memory.doubtful_claims.on(uid, lambda _: text) == []
    assert state.memory.claim_drops.may_begin(uid, replica.seconds)


def test_filter_offers_only_the_node_with_the_claims_while_these_cannot_be_dropped() -> None:
    """A bind to another node would be refused; that node is tried again, although the pod has won it in vain."""
    world, replica = tried()
    assert sorted(offered(replica, *NODES).node_names) == ["n2", "n3"]
    drive(replica.start_bind("p", "n2"), answering(world, FencePod, POLICY))
    assert offered(replica, *NODES).node_names == ["n1"]
    refused = offered(replica, "n2", "n3")
    assert refused.node_names == []
    assert refused.failed_and_unresolvable_nodes == dict.fromkeys(("n2", "n3"), CLAIMED_ELSEWHERE.sentence)


def test_filter_offers_all_nodes_once_the_claims_are_gone() -> None:
    """`release` has fenced the pod."""
    world, replica = tried()
    drive(replica.start_bind("p", "n2"), answering(world, FencePod, POLICY))
    replica.attention = type(replica.attention)(orphan_seconds=0.0)
    replica.reconcile(rounds=1, seconds=0.0)
    assert held(world) == []
    assert {"n2", "n3"} <= set(offered(replica, *NODES).node_names)


def test_another_attempt_is_made_after_a_pause() -> None:
    """What refused the fence may be over."""
    world, replica = tried()
    drive(replica.start_bind("p", "n2"), answering(world, FencePod, POLICY))
    replica.seconds += 31.0
    assert "n2" in offered(replica, *NODES).node_names


def test_filter_offers_all_nodes_once_the_claims_could_be_dropped() -> None:
    """The pause is for those that failed; n1 and n2 step back, as the pod has won them in vain."""
    world, replica = tried()
    drive(replica.start_bind("p", "n2"), answering(world, FencePod, POLICY))
    assert failure_of(drive(replica.start_bind("p", "n2"), lose_request(world, BindPod))) is Failure.NO_ANSWER
    assert offered(replica, *NODES).node_names == ["n3"]


def test_a_pod_without_claims_is_not_fenced() -> None:
    """A bind costs what it did."""
    world = World(*NODES)
    world.add_pod("p")
    assert isinstance(Replica(world).bind("p", "n2"), Bound)
    assert kinds(world) == ["SwapLedger", "BindPod"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "faults", "runs"),
    [
        pytest.param((RequestFault.LOST_REQUEST, None), 1, 100, id="a webhook is down"),
        pytest.param((None, RequestFault.LOST_REQUEST), 2, 500, id="all is well", marks=pytest.mark.slow),
    ],
)
def test_no_fault_makes_one_extender_claim_more_than_a_pod_asks_for(
    first: tuple[RequestFault | None, ...], faults: int, runs: int
) -> None:
    """In a row of binds to three nodes, by one process or by another one in its place.

    What nobody can know is a claim that arrives after the process that sent it has died.
    """
    fates = (*first, *(fate for fate in DELIVERIES if fate not in first))

    def run(choices: Choices) -> None:
        _run_along_nodes(choices, fates)

    assert explore(run, faults) > runs


def _run_along_nodes(choices: Choices, fates_of_bindings: tuple[RequestFault | Fault | None, ...]) -> None:
    world = World(*NODES)
    uid = world.add_pod("p")["metadata"]["uid"]
    replica, orphaned = Replica(world), False

    def execute(intent: Intent) -> Reply:
        fates = fates_of_bindings if isinstance(intent, BindPod) else DELIVERIES
        return deliver(world, choices.choose(fates), intent)

    for node in ("n1", "n2", "n1", "n3"):
        try:
            drive(replica.start_bind("p", node), execute)
        except Crash:
            replica, orphaned = Replica(world), orphaned or any(isinstance(intent, SwapLedger) for intent in world.late)
        choices.choose((lambda: None, replica.catch_up, world.deliver_late))()
        assert orphaned or len(_claimed(world, uid)) <= 1
    replica.catch_up()
    replica.reconcile()
    assert len(_claimed(world, uid)) <= 1


def _claimed(world: World, uid: str) -> list[str]:
    return [name for name in NODES if uid in world.claims(name).values()]
