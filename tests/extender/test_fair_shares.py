"""What is remembered of pods that wait is shared between namespaces: one tenant's thousands push out nothing of another's."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from extender.binding.bind import bind
from extender.binding.intents import NoAnswer
from extender.binding.outcome import BindTarget, NotBound
from extender.cluster.candidates.offers import Offers
from extender.cluster.candidates.refusals import Refusals
from extender.cluster.candidates.setbacks import Setbacks
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.steering.nominations import Nominations
from extender.kit.backoff import Backoff, Pauses
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import args, at, cluster, node, pod
from tests.extender.planning.queues import waiting

FEW = 3
VICTIM = pod("victim", 1)


def crowd(gpus: int = 1) -> Iterator[Pod]:
    """Yield more pods of another tenant than a table keeps."""
    for number in range(2 * FEW):
        built = pod(f"evil{number}", gpus)
        yield replace(built, metadata=replace(built.metadata, namespace="evil"))


def asked_about(state: ClusterState, *pods: Pod, nodes: tuple[str, ...] = ("n1",)) -> None:
    for each in pods:
        filter_nodes(state, args(each, *nodes), at())


def test_refusals() -> None:
    """Of pods that no node will do for."""
    state = cluster(node("n1"))
    state.memory.refusals = Refusals(FEW)
    asked_about(state, pod("victim", 16), *crowd(gpus=16))
    assert state.memory.refusals.of("victim")


def test_offers() -> None:
    """Of candidates that a pod has come back from."""
    state = cluster(node("n1"), node("n2"))
    state.memory.offers = Offers(FEW)
    asked_about(state, VICTIM, *crowd(), nodes=("n1", "n2"))
    assert state.memory.offers.refused("victim", state.shapes)


def test_winners_that_came_to_nothing() -> None:
    """Announced, and what follows of it when the pod is back."""
    state = cluster(node("n1"))
    state.memory.setbacks = Setbacks(FEW)
    asked_about(state, VICTIM, *crowd())
    filter_nodes(state, args(VICTIM, "n1"), at(1.0))
    asked_about(state, *crowd())
    assert state.memory.setbacks.away("victim", "", 1.0) == ["n1"]


def test_binds_that_failed() -> None:
    """The node steps back from each of these pods."""
    pods = [VICTIM, *crowd()]
    state = cluster(node("n1"), *pods)
    state.memory.setbacks = Setbacks(FEW)
    for each in pods:
        outcome = in_vain(state, each)
        assert isinstance(outcome, NotBound)
    assert state.memory.setbacks.away("victim", "", 1.0) == ["n1"]


def in_vain(state: ClusterState, item: Pod) -> object:
    """Try to bind a pod while the API server answers nothing."""
    metadata = item.metadata
    target = BindTarget(metadata.namespace, metadata.name, metadata.uid, "n1")
    steps = bind(state, target, at, deadline=5.0)
    next(steps)
    while True:
        try:
            steps.send(NoAnswer("timeout"))
        except StopIteration as end:
            return end.value


def test_owners_whose_pods_ended_before_they_started() -> None:
    """Owners are named with their namespace."""
    setbacks = Setbacks(FEW)
    for owner in ("good/job", *(f"evil/{number}" for number in range(2 * FEW))):
        setbacks.end_unstarted(f"pod of {owner}", owner, "n1", is_news=True)
    setbacks.come_back("next", "good/job", 1.0)
    assert setbacks.away("next", "good/job", 1.0) == ["n1"]


def test_pauses_of_nominations() -> None:
    """Of pods that were nominated in vain."""
    pods = [waiting("victim"), *crowd()]
    state = cluster(node("n1"), *pods)
    made = Nominations(state, 10.0)
    made._pods = Backoff(Pauses(30.0, 960.0), FEW)
    for each in pods:
        known = state.pods.get(each.metadata.uid)
        assert known
        made._pause(known, 0.0)
    victim = state.pods.get("victim")
    assert victim and not made.may_begin(victim, 1.0)
