"""What is said of a pod that waits: for how long, and why."""

from __future__ import annotations

from extender.inspect.waiting import waiting_pod
from tests.extender.builders import at, cluster, node, pod
from topology.placement.verdict import Reason


def test_a_pod_waits_since_it_was_created() -> None:
    """By the API server's time stamp."""
    state = cluster(node("n1"), pod("p1", 2, created="2026-01-01T00:01:00Z"))
    [found] = state.pods
    told = waiting_pod(state, found, at(3_660.0))
    assert told.since
    assert (told.since.isoformat(), told.seconds) == ("2026-01-01T00:01:00+00:00", 3_600.0)


def test_reasons_are_those_of_the_last_refusal() -> None:
    """None before the first one: nobody is asked for the page's sake."""
    state = cluster(node("n1"), pod("p1", 2))
    [found] = state.pods
    assert waiting_pod(state, found, at()).reasons == ()
    state.memory.refusals.add(found.uid, frozenset({Reason.TOO_FEW_FREE, Reason.CLOSED}), 0.0)
    assert waiting_pod(state, found, at()).reasons == ("closed", "too-few-free")
