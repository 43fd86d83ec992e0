"""Pods of the queue get events about what they wait for, unless they are planned soon after they came."""

from __future__ import annotations

import pytest

from extender.features.queue import events
from extender.features.queue.listing import QueueStanding
from extender.features.queue.waiting import UNANNOUNCED_SECONDS, NotPlanned, WaitReason
from extender.planning.planner import Start
from tests.extender.builders import PAIRS, at, cluster, node
from tests.extender.features.queue.queued import of_gang, queued, read
from tests.extender.planning.gangs import placed


@pytest.mark.parametrize(("seconds", "notes"), [(UNANNOUNCED_SECONDS - 1, []), (UNANNOUNCED_SECONDS, ["no room"])])
def test_a_pod_hears_why_it_waits_once_it_has_waited(seconds: float, notes: list[str]) -> None:
    """An event is a write, and most pods of a burst are planned before anybody reads it."""
    state = cluster(node("n1", PAIRS), queued("p"))
    standing = QueueStanding.not_planned(state.indexes.gates.queued["p"], NotPlanned(WaitReason.NO_ROOM, "no room"))
    said = [event.note for event in events.of_waiting([(standing, 1)], at(seconds))]
    assert said == [f"waits in gputopo's queue, place 1: {note}" for note in notes]


@pytest.mark.parametrize(
    ("seconds", "waiting", "names"),
    [(UNANNOUNCED_SECONDS, "ab", "ab"), (UNANNOUNCED_SECONDS, "b", "b"), (UNANNOUNCED_SECONDS - 1, "ab", "")],
)
def test_a_pod_hears_where_it_goes_if_it_has_waited(seconds: float, waiting: str, names: str) -> None:
    """kube-scheduler says it of each pod anyway."""
    state = cluster(node("n1", PAIRS), of_gang("a"), of_gang("b"))
    (unit,) = read(state).units
    said = [*events.of_start(Start(unit, placed(state, unit)), {*waiting}, at(seconds))]
    assert [event.about.name for event in said] == [*names]
    assert {event.note for event in said} <= {"is planned on n1, with 1 other of its gang"}
