"""A gang is half when some of its members are bound and others are not, for a minute, and nobody carries out its plan."""

from __future__ import annotations

import pytest

from extender.cluster.objects.kinds import Pod
from extender.features.queue.half_gangs import PATIENCE_SECONDS, HalfGangs
from tests.extender.builders import cluster, node
from tests.extender.features.queue.queued import bound, of_gang, opened, queued


def halves(*pods: Pod, begun: frozenset[str] = frozenset(), seconds: float = PATIENCE_SECONDS) -> list[str]:
    """Return the bound members of the half gangs, after so many seconds."""
    gangs = HalfGangs(cluster(node("n1"), *pods))
    assert gangs.long_since(0.0, begun) == {}
    return sorted(pod.key[1] for members in gangs.long_since(seconds, begun).values() for pod in members)


@pytest.mark.parametrize("other", [of_gang("b"), opened(of_gang("b"), "n1")], ids=["gated", "sent"])
def test_a_gang_is_half_when_a_member_waits_for_a_minute_and_another_is_bound(other: Pod) -> None:
    """Whether the one that waits still has its gate or not."""
    assert halves(bound(of_gang("a"), "n1"), other) == ["a"]
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
    assert halves(*pods, begun=frozenset({"b"})) == []


def test_the_minute_begins_anew_when_a_gang_was_whole() -> None:
    """A member died, and its successor waits."""
    state = cluster(node("n1"), bound(of_gang("a"), "n1"), of_gang("b"))
    gangs = HalfGangs(state)
    gangs.long_since(0.0, ())
    state.pods.changed(bound(of_gang("b"), "n1"))
    gangs.long_since(30.0, ())
    state.pods.changed(of_gang("c", size=2))
    gangs.long_since(40.0, ())
    assert gangs.long_since(70.0, ()) == {}
    assert gangs.long_since(100.0, ()) != {}
