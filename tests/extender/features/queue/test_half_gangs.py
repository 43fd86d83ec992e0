"""A gang is half when some of its members are bound and others are not, for a minute, and nobody carries out its plan."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.features.queue.half_gangs import PATIENCE_SECONDS, HalfGangs
from tests.extender.builders import PAIRS, claim, cluster, gpus, node
from tests.extender.features.queue.queued import bound, of_gang, opened, queued
from topology.annotations import keys
from topology.effort import finish


def halves(*pods: Pod, planned: frozenset[str] = frozenset(), seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Return the names of the half gangs, after so many seconds."""
    gangs = HalfGangs(cluster(node("n1"), *pods))
    assert not finish(gangs.long_since(0.0, planned))
    return [gang.key[2] for gang in finish(gangs.long_since(seconds, planned))]


@pytest.mark.parametrize("other", [of_gang("b"), opened(of_gang("b"), "n1")], ids=["gated", "sent"])
def test_a_gang_is_half_when_a_member_waits_for_a_minute_and_another_is_bound(other: Pod) -> None:
    """Whether the one that waits still has its gate or not."""
    assert halves(bound(of_gang("a"), "n1"), other) == ["g"]
    assert halves(bound(of_gang("a"), "n1"), other, seconds=PATIENCE_SECONDS - 1) == []


@pytest.mark.parametrize(
    "pods",
    [
        (of_gang("a"), of_gang("b")),
        (bound(of_gang("a"), "n1"), bound(of_gang("b"), "n1")),
        (bound(queued("a"), "n1"), queued("b")),
    ],
    ids=["none-bound", "all-bound", "no-gang"],
)
def test_what_waits_whole_and_what_is_whole_is_no_half_gang(pods: tuple[Pod, Pod]) -> None:
    """Nor are pods that belong to no gang."""
    assert halves(*pods) == []


def test_a_gang_whose_plan_is_carried_out_is_no_half_gang() -> None:
    """Its members are bound one after the other."""
    pods = bound(of_gang("a", size=3), "n1"), of_gang("b", size=3), of_gang("c", size=3)
    assert halves(*pods, planned=frozenset({"b"})) == []


def test_a_gang_with_claims_behind_its_gate_is_no_half_gang() -> None:
    """A plan has been begun, perhaps by another replica: it is carried on, or taken back."""
    claims = (claim(gpus("n1", 0)[0], "b"),)
    gangs = HalfGangs(cluster(node("n1", claims=claims), bound(of_gang("a"), "n1"), of_gang("b")))
    finish(gangs.long_since(0.0, ()))
    assert finish(gangs.long_since(PATIENCE_SECONDS, ())) == []


@pytest.mark.parametrize(
    ("least", "bound_members", "expected"), [(0, 2, ["g"]), (2, 2, []), (2, 1, ["g"])], ids=["all", "enough", "too-few"]
)
def test_an_elastic_gang_with_its_minimum_is_whole(least: int, bound_members: int, expected: list[str]) -> None:
    """More of its pods may wait for room, as long as they like."""
    members = [of_gang(f"p{number}", size=4, least=least) for number in range(4)]
    there = [bound(member, "n1") for member in members[:bound_members]]
    assert halves(*there, *members[bound_members:]) == expected


def test_members_that_have_succeeded_count() -> None:
    """A gang of three comes to its end: its last pod runs, and one more than it needs waits."""
    done = bound(of_gang("a", size=3), "n1"), bound(of_gang("b", size=3), "n1")
    succeeded = [replace(pod, status=replace(pod.status, phase="Succeeded")) for pod in done]
    assert halves(*succeeded, bound(of_gang("c", size=3), "n1"), of_gang("d", size=3)) == []


def test_nobody_knows_how_many_pods_a_gang_without_size_needs() -> None:
    """It is not planned either."""
    members = [queued(name, wants={keys.GROUP: "g", keys.GANG: "required"}) for name in "ab"]
    assert halves(bound(members[0], "n1"), members[1]) == []


def test_a_half_gang_says_which_of_its_members_are_bound() -> None:
    """One is bound, one was sent to its node, and one waits in the queue."""
    members = bound(of_gang("a", size=3), "n1"), opened(of_gang("b", size=3), "n1"), of_gang("c", size=3)
    gangs = HalfGangs(cluster(node("n1"), *members))
    finish(gangs.long_since(0.0, ()))
    [gang] = finish(gangs.long_since(PATIENCE_SECONDS, ()))
    assert (gang.needed, [pod.uid for pod in gang.bound]) == (3, ["a"])
    assert sorted(pod.uid for pod in gang.unbound) == ["b", "c"]


def test_the_minute_starts_again_when_nobody_has_looked() -> None:
    """Another replica was the leader, and the gang may have been whole."""
    gangs = HalfGangs(cluster(node("n1"), bound(of_gang("a"), "n1"), of_gang("b")))
    finish(gangs.long_since(0.0, ()))
    gangs.forget()
    assert finish(gangs.long_since(PATIENCE_SECONDS, ())) == []


def test_the_minute_starts_again_when_a_gang_was_whole() -> None:
    """A member died, and its successor waits."""
    state = cluster(node("n1"), bound(of_gang("a"), "n1"), of_gang("b"))
    gangs = HalfGangs(state)
    finish(gangs.long_since(0.0, ()))
    state.pods.changed(bound(of_gang("b"), "n1"))
    finish(gangs.long_since(30.0, ()))
    state.pods.deleted(bound(of_gang("b"), "n1"))
    state.pods.changed(of_gang("c"))
    finish(gangs.long_since(40.0, ()))
    assert not finish(gangs.long_since(70.0, ()))
    assert finish(gangs.long_since(100.0, ()))


def test_a_gang_is_not_half_while_gpus_are_held_for_the_member_that_waits() -> None:
    """Pods move for it; without that it would lose its other members."""
    state = cluster(node("n1", PAIRS), bound(of_gang("a"), "n1"), of_gang("b"))
    gangs = HalfGangs(state)
    finish(gangs.long_since(0.0, ()))
    state.holds.put("b", Hold("n1", 0b1100, 600.0, is_firm=True))
    assert not finish(gangs.long_since(PATIENCE_SECONDS, ()))


def test_a_gang_is_looked_at_once_however_many_of_its_members_wait() -> None:
    """A thousand that wait whole cost a thousand looks, and not a million."""
    state = cluster(node("n1"), *(of_gang(f"p{number}", size=100) for number in range(100)))
    looks = 0
    beside = state.indexes.groups.beside

    def counted(uid: str) -> list[GpuPod]:
        nonlocal looks
        looks += 1
        return beside(uid)

    state.indexes.groups.beside = counted  # type: ignore[method-assign]
    finish(HalfGangs(state).long_since(0.0, ()))
    assert looks == 1
