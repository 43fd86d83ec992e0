"""What is shown of the queue: units in the order in which they are served, and one sentence about each pod."""

from __future__ import annotations

from msgspec.structs import replace

from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.queue import listing
from extender.features.queue.estimate import estimate
from extender.features.queue.feature import Queue
from extender.features.queue.listing import QueueReport, QueueRow
from tests.extender.builders import at, cluster, gpus, node, pod
from tests.extender.features.queue.queued import OTHER_GATE, of_gang, queued
from topology.annotations import keys

RUNS = {keys.EXPECTED_DURATION: "1h"}


def shown(state: ClusterState) -> QueueReport:
    """Return what a planner would say at 00:01:00."""
    answer = estimate(state, at(60.0))
    return listing.report(state, answer.standings, at(60.0), is_served=None, reservation=answer.reservation)


def by_name(*pods: Pod) -> dict[str, QueueRow]:
    """Return the rows of these pods on a node with two GPUs."""
    return {row.name: row for row in shown(cluster(node("n1", "rtx-3090-2"), *pods)).rows}


def note_of(state: ClusterState, name: str, *, is_off: bool = False) -> tuple[str, bool]:
    """Return what the queue says of a pod, and whether that is a problem."""
    pod = state.pods.find("ml", name)
    assert pod is not None
    note = Queue.note_without(state, pod, at(60.0), is_off=is_off)
    return (note.line, note.is_problem) if note else ("", False)


def test_rows_are_in_the_order_in_which_units_are_served() -> None:
    """Those with room come first, then by priority; a pod that waits for other gates has no place yet."""
    state = cluster(
        node("n1", "rtx-3090-2"),
        queued("held", gates=(OTHER_GATE, keys.PLAN_GATE)),
        queued("low", 2),
        queued("high", 2, priority=9),
        queued("next", 2, priority=5),
    )
    rows = [(row.place, row.name, row.reason) for row in shown(state).rows]
    assert rows == [
        (1, "high", "planned"),
        (2, "next", "no-room"),
        (3, "low", "no-room"),
        (None, "held", "other-gates"),
    ]


def test_a_gang_is_one_row() -> None:
    """With all GPUs of its pods, since the first of them was created."""
    row = by_name(of_gang("a", created="2026-01-01T00:00:30Z"), of_gang("b", created="2026-01-01T00:00:10Z"))["g"]
    assert (row.kind, row.namespace, row.pods, row.gpus, row.seconds) == ("gang", "ml", 2, 4, 50.0)
    assert row.reason == "no-room"


def test_places_of_the_first_pods_are_read_without_the_others_of_their_gang() -> None:
    """A gang may have thousands, and the next pod that is told its place is one of them."""
    state = cluster(*(of_gang(f"g{number}", size=9) for number in range(9)))
    standings = iter(listing.not_yet(listing.queued(state)))
    next(listing.with_places(state, standings))
    assert len([*standings]) == 8


def test_members_that_wait_for_something_else_have_a_row_of_their_own() -> None:
    """So it can be seen what holds the gang up."""
    state = cluster(node("n1", "rtx-3090-2"), of_gang("a"), of_gang("b", gates=(OTHER_GATE, keys.PLAN_GATE)))
    reasons = {row.reason: row.pods for row in shown(state).rows}
    assert reasons == {"incomplete": 1, "other-gates": 1}


def test_the_owner_of_the_reservation_is_marked_with_its_expected_start() -> None:
    """The running pod says that it needs an hour from its start; nobody knows of one that does not."""
    before = pod("r", 2, on="n1", placed=gpus("n1", 0, 1, machine_name="rtx-3090-2"), wants=RUNS, phase="Running")
    running = replace(before, status=replace(before.status, start_time="2026-01-01T00:00:00Z"))
    row = by_name(running, of_gang("a", 1), of_gang("b", 1))["g"]
    assert (row.reason, row.is_reserved_for) == ("reserved", True)
    assert row.expected_start and row.expected_start.isoformat() == "2026-01-01T01:00:00+00:00"
    row = by_name(before, of_gang("a", 1), of_gang("b", 1))["g"]
    assert (row.is_reserved_for, row.expected_start) == (True, None)


def test_rows_are_bounded_and_the_others_counted() -> None:
    """Nobody can make the answer longer than that."""
    state = cluster(*(queued(f"p{number}") for number in range(listing.ROWS + 7)))
    report = shown(state)
    assert (len(report.rows), report.pods_left_out) == (listing.ROWS, 7)


def test_a_pod_is_told_its_place_and_reason() -> None:
    """Nothing is said of a pod without our gate."""
    state = cluster(
        node("n1", "rtx-3090-2"), queued("first", 2, priority=1), queued("second", 2), queued("free", gates=())
    )
    assert note_of(state, "first") == ("in gputopo's queue, place 1: it is planned on n1", False)
    assert note_of(state, "second") == ("in gputopo's queue, place 2: there is no room for it now", False)
    assert note_of(state, "free") == ("", False)


def test_a_pod_that_waits_in_vain_has_a_problem() -> None:
    """Because the queue is off, or because nothing says how many pods its gang has."""
    sizeless = queued("g0", wants={keys.GROUP: "g", keys.GANG: "required"})
    state = cluster(node("n1"), queued("p"), sizeless)
    line, is_problem = note_of(state, "p", is_off=True)
    assert is_problem and "runs without `queue.enabled`" in line
    line, is_problem = note_of(state, "g0")
    assert is_problem and "set gputopo.dev/group-size" in line


def test_a_report_without_the_queue_lists_who_waits_in_vain() -> None:
    """The oldest first."""
    state = cluster(queued("new", created="2026-01-01T00:00:09Z"), queued("old", created="2026-01-01T00:00:01Z"))
    report = Queue.report_without(state, at(60.0))
    assert report.is_served is False
    assert [(row.name, row.reason) for row in report.rows] == [("old", "no-planner"), ("new", "no-planner")]
