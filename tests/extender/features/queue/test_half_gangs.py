"""A gang is half when some of its members are bound and others are not, for a minute, and nobody carries out its plan."""

from __future__ import annotations

import pytest

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.features.queue.half_gangs import PATIENCE_SECONDS, HalfGangs
from tests.extender.builders import cluster, node
from tests.extender.features.queue.queued import bound, of_gang, opened, queued
from topology.effort import finish


def halves(*pods: Pod, planned: frozenset[str] = frozenset(), seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Return the names of the half gangs, after so many seconds."""
    gangs = HalfGangs(cluster(node("n1"), *pods))
    assert not finish(gangs.long_since(0.0, planned))
    return sorted(name for _, _, name, _ in finish(gangs.long_since(seconds, planned)))


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


def test_the_minute_starts_again_when_a_gang_was_whole() -> None:
    """A member died, and its successor waits."""
    state = cluster(node("n1"), bound(of_gang("a"), "n1"), of_gang("b"))
    gangs = HalfGangs(state)
    finish(gangs.long_since(0.0, ()))
    state.pods.changed(bound(of_gang("b"), "n1"))
    finish(gangs.long_since(30.0, ()))
    state.pods.changed(of_gang("c", size=2))
    finish(gangs.long_since(40.0, ()))
    assert not finish(gangs.long_since(70.0, ()))
    assert finish(gangs.long_since(100.0, ()))


def test_a_gang_is_looked_at_once_however_many_of_its_members_wait() -> None:
    """A thousand that wait whole cost a thousand looks, and not a million."""
    state = cluster(node("n1"), *(of_gang(f"p{number}", size=100) for number in range(100)))
    looks = 0
    peers = state.indexes.groups.peers

    def counted(uid: str) -> list[GpuPod] | None:
        nonlocal looks
        looks += 1
        return peers(uid)

    state.indexes.groups.peers = counted  # type: ignore[method-assign]
    finish(HalfGangs(state).long_since(0.0, ()))
    assert looks == 1
