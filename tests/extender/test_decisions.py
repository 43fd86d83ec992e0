"""The last decisions and the room of a day: what is remembered of them, how much, and who may read it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from extender.inspect.decisions import LIMIT, Alternative, Decision, Decisions
from extender.inspect.fragmentation import Fits
from extender.inspect.room_over_time import EVERY_SECONDS, KEPT, RoomHistory
from extender.kit.clock import Instant
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from extender.web import pages
from extender.web.curves import curves
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod
from topology.request.gpu_request import GpuRequest

LONGEST = "x" * 253
"""No pod's and no node's name is longer in Kubernetes."""
MIB = 1 << 20


def decision(number: int, name: str = "p") -> Decision:
    return Decision(
        number=number,
        at=datetime.fromtimestamp(1_700_000_000 + number, UTC),
        namespace=name[:63],
        name=name,
        uid=f"uid-{number}",
        node=name[::-1],
        indexes=tuple(range(8)),
        gb_per_s=float(number),
        best_gb_per_s=200.0 + number,
        loss=0.5 + number,
        alternative=Alternative(f"{number}{name}"[:253], 1.0 + number, 2.0 + number),
    )


def remembered(count: int) -> Decisions:
    """Remember so many, each with names of its own."""
    found = Decisions()
    for number in range(1, count + 1):
        found.add(decision(number, f"{number}{LONGEST}"[:253]))
    return found


def a_day(counts: int) -> RoomHistory:
    """Count every minute, each time something else."""
    found = RoomHistory()
    for minute in range(counts):
        seconds = minute * EVERY_SECONDS
        fits = {1 << power: Fits(1_000 + minute, 2_000 + minute, 5_000 + minute) for power in range(5)}
        found.add(Instant(seconds, 1_700_000_000.0 + seconds), fits)
    return found


def bytes_of(make: Callable[[], object]) -> int:
    """Return what is still there of all that was allocated to make it."""
    tracemalloc.start()
    made = make()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del made
    return size


def test_the_alternative_is_the_best_other_node_that_was_asked_about() -> None:
    """Whichever node kube-scheduler takes in the end; nothing is decided anew for it."""
    asked = pod("p", 2)
    state = cluster(
        node("joined", PAIRS),
        node("apart", PAIRS, claims=tuple(claim(gpu, "q") for gpu in gpus("apart", 0, 2, 4, 6, machine_name=PAIRS))),
        node("unasked", PAIRS),
        asked,
    )
    filter_nodes(state, args(asked, "joined", "apart"), at())
    prioritize_nodes(state, args(asked, "joined", "apart"), at())
    uid = asked.metadata.uid
    found = {chosen: state.holds.alternative(uid, chosen) for chosen in ("joined", "apart")}
    assert {chosen: other and other.node for chosen, other in found.items()} == {"joined": "apart", "apart": "joined"}
    view = state.views["apart"]
    assert found["joined"]
    assert found["joined"].placement == view.shape.decide(GpuRequest.plain(2))


def test_where_one_node_fits_there_is_no_alternative() -> None:
    """Then kube-scheduler does not ask for scores."""
    asked = pod("p", 2)
    state = cluster(node("n1", PAIRS), asked)
    filter_nodes(state, args(asked, "n1"), at())
    assert len(state.holds) == 1
    assert state.holds.alternative(asked.metadata.uid, "n1") is None


def test_a_thousand_decisions_are_remembered_in_two_mebibytes() -> None:
    """With the longest names that Kubernetes allows; the oldest makes room."""
    page = remembered(LIMIT + 5).page(LIMIT + 5)
    assert (page.decisions[0].number, page.decisions[-1].number, page.next) == (LIMIT + 5, 6, None)
    assert bytes_of(lambda: remembered(5 * LIMIT)) < 2 * MIB


def test_decisions_about_one_tenants_pods_push_out_no_others() -> None:
    """However many they are."""
    found = Decisions(10)
    found.add(decision(1, "good"))
    for number in range(2, 100):
        found.add(decision(number, "evil"))
    assert [each.number for each in found.page(100).decisions] == [*range(99, 90, -1), 1]
    assert found.of("uid-1") and found.next_number == 100


def test_a_day_is_remembered_in_two_mebibytes() -> None:
    """One count a minute, however often there is one; the oldest makes room."""
    history = a_day(KEPT + 5)
    history.add(Instant((KEPT + 4.5) * EVERY_SECONDS, 0.0), {})
    found = history.over_time()
    assert len(found.times) == KEPT
    assert [size.gpus for size in found.sizes] == [1, 2, 4, 8, 16]
    assert (found.sizes[0].now[0], found.sizes[0].now[-1]) == (1_005, 1_004 + KEPT)
    assert bytes_of(lambda: a_day(2 * KEPT)) < 2 * MIB


def test_decisions_come_page_by_page_the_newest_first() -> None:
    """No page shows one that another has shown, also while others are added."""
    kept = remembered(5)
    first = kept.page(2)
    kept.add(decision(6))
    second = kept.page(2, first.next)
    third = kept.page(2, second.next)
    assert [[each.number for each in page.decisions] for page in (first, second, third)] == [[5, 4], [3, 2], [1]]
    assert third.next is None


def test_a_curve_tells_the_fewest_and_when_and_begins_when_there_was_such_a_machine() -> None:
    """In words, too; of what was not counted nothing is drawn."""
    history = RoomHistory()
    for minute, fits in enumerate([{}, {2: Fits(3, 4, 4)}, {2: Fits(1, 4, 4)}, {2: Fits(2, 4, 4)}]):
        history.add(Instant(60.0 * minute, 60.0 * minute), fits)
    [curve] = curves(history.over_time())
    assert (curve.now, curve.by_count, curve.empty, curve.most) == (2, 4, 4, 4)
    assert curve.now_line == "200.0,30.0 400.0,90.0 600.0,60.0"
    assert curve.said == (
        "2 pods of 2 GPUs fit at the end, 4 would if the links did not matter; "
        "the fewest that fitted were 1, at 1970-01-01T00:02:00Z"
    )
    history.add(Instant(240.0, 240.0), {})
    assert [*curves(history.over_time())] == []


def test_a_drawing_of_a_whole_day_is_small() -> None:
    """A few hundred points of each line, the last one among them."""
    room = a_day(KEPT).over_time()
    drawn = [*curves(room)]
    for curve in drawn:
        assert 200 < len(curve.now_line.split()) < 300
        assert curve.now_line.split()[-1].startswith("600.0,")
    assert len("".join(pages.fragmentation_page(room.times, drawn))) < 64 * 1024


@pytest.mark.parametrize(
    ("alternative", "said"),
    [
        (None, "no other node is known that it fitted on then"),
        (
            Alternative("n2", 119.4, 0.25),
            "preferred to n2; predicted 119 GB/s (82 less); future pods would lose 0.25 points (1.25 less)",
        ),
        (
            Alternative("n2", 201.0, 1.75),
            "preferred to n2; predicted 201 GB/s (as much); future pods would lose 1.75 points (0.25 more)",
        ),
        (Alternative("n2", None, None), "preferred to n2"),
    ],
)
def test_what_a_choice_was_preferred_to_is_said_in_words(alternative: Alternative | None, said: str) -> None:
    """And what that would have cost, beside what the choice did."""
    found = replace(decision(1), gb_per_s=201.0, loss=1.5, alternative=alternative)
    assert (
        found.line
        == "bound at 2023-11-14T22:13:21Z; predicted 201 GB/s (the node's best is 201); future pods lose 1.50 points"
    )
    assert found.instead == said


def test_a_choice_is_that_of_the_pod_and_not_of_a_namesake() -> None:
    """By UID: a pod of the same name that another extender bound is not remembered."""
    kept = remembered(3)
    assert kept.of("uid-2") == kept.page(3).decisions[1]
    assert kept.of("uid-of-a-namesake") is None
