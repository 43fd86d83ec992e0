"""Nominations are written for one version of a pod, held for, and taken back when they do not come true; others' never."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.binding.intents import Conflict, Gone, NoAnswer, Refused, Reply
from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.gpu_pods import GpuPod
from extender.features.steering.nominations import BEFORE_OWNER_PAUSES, FIRST_PAUSE_SECONDS, GRACE_SECONDS, Nominations
from tests.extender.builders import cluster, node, pod
from tests.extender.planning.queues import answered, assignments, nominated, waiting

LIFE = 10.0


def overdue(nominations: Nominations, now: float) -> list[str]:
    return [each.uid for each in nominations.overdue(now)]


def test_a_nomination_is_written_for_the_version_that_was_planned() -> None:
    """With the GPUs held, and the pod known as it is then: a bind that follows rests on the newest version."""
    state = cluster(node("n1"), waiting("p1", 2))
    nominations = Nominations(state, LIFE)
    (assignment,) = assignments(state)
    nominations.hold(assignment, 0.0)
    intent, is_made = answered(nominations.nominate(assignment, 0.0))
    assert intent and (intent.node, intent.resource_version, intent.uid) == ("n1", "1", "p1")
    assert is_made and state.holds.own("p1", "n1", 0.0) == assignment.gpus
    known = state.pods.get("p1")
    assert known and known.pod.metadata.resource_version == "2"
    assert assignments(state) == [], "it is not planned again"


def test_kube_scheduler_may_be_faster() -> None:
    """A pod that was asked about meanwhile is not written to: its bind would lose a round."""
    state = cluster(node("n1"), waiting("p1"))
    nominations = Nominations(state, LIFE)
    (assignment,) = assignments(state)
    nominations.hold(assignment, 0.0)
    state.holds.put("p1", Hold("n2", 1, 99.0))
    assert answered(nominations.nominate(assignment, 0.0)) == (None, False)


@pytest.mark.parametrize("reply", [Conflict("changed"), Gone(), Refused(422, "bound"), NoAnswer("timeout")])
def test_what_could_not_be_written_is_not_held(reply: Reply) -> None:
    """The GPUs are there for the next one; a write that happened all the same is seen by its mark."""
    state = cluster(node("n1"), waiting("p1"))
    nominations = Nominations(state, LIFE)
    (assignment,) = assignments(state)
    nominations.hold(assignment, 0.0)
    assert answered(nominations.nominate(assignment, 0.0), reply)[1] is False
    assert len(state.holds) == 0 and not nominations.ahead_since()


def made(owner: str = "") -> tuple[Nominations, str]:
    state = cluster(node("n1"), waiting("p1", owner=owner))
    nominations = Nominations(state, LIFE)
    (assignment,) = assignments(state)
    nominations.hold(assignment, 0.0)
    assert answered(nominations.nominate(assignment, 0.0))[1]
    return nominations, "p1"


def test_one_is_ahead_of_kube_scheduler_until_that_asks_about_its_pod() -> None:
    """However long the bind takes then; it stands until that is done."""
    nominations, uid = made()
    assert (nominations.ahead(), nominations.ahead_since()) == (frozenset({uid}), [0.0])
    nominations.asked(uid)
    assert (nominations.ahead(), nominations.ahead_since()) == (frozenset(), [])
    assert list(nominations.ended(LIFE)) == []


def test_one_stands_as_long_as_its_gpus_are_held() -> None:
    """And a moment longer, in which a pod that goes elsewhere is bound."""
    nominations, uid = made()
    assert overdue(nominations, 0.0) == [] == overdue(nominations, LIFE - 0.1)
    assert overdue(nominations, LIFE + GRACE_SECONDS) == [uid]


def test_one_that_was_refused_is_taken_back_within_seconds() -> None:
    """The hold goes with the refusal; autoscalers pass over the pod as long as the nomination stands."""
    nominations, uid = made()
    assert overdue(nominations, 0.0) == []
    nominations.state.holds.release(uid)
    assert overdue(nominations, 0.5) == []
    assert overdue(nominations, 0.1 + GRACE_SECONDS) == [uid]


def test_taking_back_rests_on_the_version_too_and_brings_a_pause() -> None:
    """What preemption has written meanwhile is a newer version."""
    nominations, uid = made()
    (stale,) = [each for each in nominations.state.pods if each.uid == uid]
    intent, is_back = answered(nominations.withdraw(stale, 20.0))
    assert intent and (intent.node, intent.resource_version) == ("", "2") and is_back
    assert not nominations.may_begin(stale, 20.0 + FIRST_PAUSE_SECONDS - 1)
    assert nominations.may_begin(stale, 20.0 + FIRST_PAUSE_SECONDS)


@pytest.mark.parametrize("node_name", ["n1", "n2"])
def test_a_nomination_of_somebody_else_is_left_alone(node_name: str) -> None:
    """Without our mark, or with that of another node, however long it stands."""
    state = cluster(node("n1"), nominated(waiting("p1"), node_name, by_us=False))
    nominations = Nominations(state, LIFE)
    assert overdue(nominations, 0.0) == [] == overdue(nominations, 1e6)
    ours = nominated(waiting("p1"), "n1", version=3)
    state.pods.changed(nominated(ours, "n2", by_us=False, version=4))
    assert overdue(nominations, 2e6) == []


def test_what_another_replica_or_a_dead_one_made_is_taken_back_after_its_life() -> None:
    """By whoever sees it: no memory is needed, and the one who is alive has had its time."""
    state = cluster(node("n1"), nominated(waiting("p1"), "n1"))
    nominations = Nominations(state, LIFE)
    assert overdue(nominations, 100.0) == [] == overdue(nominations, 100.0 + LIFE)
    assert overdue(nominations, 100.0 + LIFE + GRACE_SECONDS) == ["p1"]


def test_a_node_that_pods_are_leaving_keeps_its_nominations() -> None:
    """Preemption may have chosen for the pod the node that we had nominated it for, and then writes nothing."""
    nominations, uid = made()
    nominations.state.holds.release(uid)
    nominations.state.pods.changed(pod("victim", 8, on="n1", deleting=True))
    assert overdue(nominations, 0.0) == [] == overdue(nominations, 60.0)
    nominations.state.pods.deleted(pod("victim", 8, on="n1", deleting=True))
    assert overdue(nominations, 61.0) == [uid]


def test_the_end_of_each_is_told_once() -> None:
    """Bound there, bound elsewhere, or cleared by kube-scheduler."""
    for after, outcome in (
        (pod("p1", on="n1", version=5), "served"),
        (pod("p1", on="n2", version=5), "elsewhere"),
        (nominated(waiting("p1"), None, version=5), "lost"),
    ):
        nominations, uid = made()
        assert list(nominations.ended(1.0)) == []
        nominations.state.pods.changed(after)
        assert list(nominations.ended(1.0)) == [outcome]
        assert list(nominations.ended(1.0)) == []
        known = nominations.state.pods.get(uid)
        assert known and nominations.may_begin(known, 1.0) == (outcome == "served")


def take_back(nominations: Nominations, version: int) -> None:
    """Let a nomination of the job's first pod stand, and take it back."""
    nominations.state.pods.changed(nominated(waiting("p1", owner="job"), "n1", version=version))
    nominations.overdue(1.0)  # it is heard of
    known = nominations.state.pods.get("p1")
    assert known and answered(nominations.withdraw(known, 1.0))[1]


def sibling(nominations: Nominations) -> GpuPod:
    """Return another pod of the job, which waits."""
    nominations.state.pods.changed(waiting("sibling", owner="job"))
    known = nominations.state.pods.get("sibling")
    assert known
    return known


def test_an_owner_whose_pods_go_elsewhere_pauses() -> None:
    """After a few in a row: something keeps them from the nodes that are planned, and each try costs a write."""
    nominations, _ = made("job")
    waits = sibling(nominations)
    for number in range(BEFORE_OWNER_PAUSES):
        assert nominations.may_begin(waits, 1.0)
        take_back(nominations, 10 * (number + 1))
    assert not nominations.may_begin(waits, 2.0)


def test_only_failures_in_a_row_let_an_owner_pause() -> None:
    """A pod that is bound where it was nominated shows that nothing keeps the others away."""
    nominations, _ = made("job")
    for number in range(BEFORE_OWNER_PAUSES - 1):
        take_back(nominations, 10 * (number + 1))
    nominations.state.pods.changed(nominated(waiting("served", owner="job"), "n1"))
    nominations.overdue(1.0)  # it is heard of
    served = nominated(waiting("served", owner="job"), "n1", version=3)
    nominations.state.pods.changed(replace(served, spec=replace(served.spec, node_name="n1")))
    assert list(nominations.ended(1.0)) == [], "another replica made it, and counts it"
    take_back(nominations, 10 * BEFORE_OWNER_PAUSES)
    assert nominations.may_begin(sibling(nominations), 1.0)


def outcomes(nominations: Nominations) -> list[bool]:
    """Return what is counted of the namespace that all these pods are in."""
    counted = nominations.breaker._of.get("ml")
    return list(counted.came_true) if counted else []


@pytest.mark.parametrize("seconds", [0.1, LIFE])
def test_one_that_comes_true_was_of_use_however_late(seconds: float) -> None:
    """Where binds are slow they are so for all pods, and kube-scheduler has been spared a look at all nodes."""
    nominations, _ = made()
    nominations.state.pods.changed(pod("p1", on="n1", version=5))
    assert list(nominations.ended(seconds)) == ["served"]
    assert outcomes(nominations) == [True]


def test_one_that_is_taken_back_was_of_no_use() -> None:
    """Of ours; what others make is theirs to learn from."""
    nominations, uid = made()
    known = nominations.state.pods.get(uid)
    assert known and answered(nominations.withdraw(known, 20.0))[1]
    assert outcomes(nominations) == [False]
