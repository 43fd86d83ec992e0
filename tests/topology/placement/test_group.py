"""A group ends up in the fewest domains there are for it, spares the large ones, and two groups never wait for each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.placement.group import Fit, Progress, fit, narrow
from topology.placement.verdict import Reason, Rejection
from topology.request.domains import Domain, GroupRequest, Level, Location

RACK = GroupRequest("g", level=Level.RACK)
ONE_RACK = GroupRequest("g", level=Level.RACK, required=True)
Fitting = dict[Location, int]


def racks(*sizes: int, block: str | None = None) -> Fitting:
    """Build a rack with room for so many pods for each number."""
    return {Location(rack=f"{block or ''}{number}", block=block): size for number, size in enumerate(sizes)}


@dataclass
class Hall:
    """Nodes that fill up as pods come, one at a time."""

    fitting: Fitting
    placed: dict[str, list[Location]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def come(self, group: str, size: int, request: GroupRequest, pick: int = 0) -> Location | Rejection:
        """Place the next pod of a group anywhere that it may choose."""
        places = self.placed.setdefault(group, [])
        self.sizes[group] = size
        answer = narrow(request, Progress(size - len(places), tuple(places)), self.fitting, self.reserved(group))
        if isinstance(answer, Rejection):
            return answer
        chosen = sorted(answer, key=str)[pick % len(answer)]
        self.fitting[chosen] -= 1
        places.append(chosen)
        return chosen

    def reserved(self, but: str) -> Mapping[Domain, int]:
        """Return what the other groups that have begun still need, where they are."""
        found: Counter[Domain] = Counter()
        for group, places in self.placed.items():
            if group != but and places:
                for domain in {place.domain(level) for place in places for level in Level}:
                    found[domain] += self.sizes[group] - len(places)
        return found


def settle(fitting: Fitting, size: int, request: GroupRequest = RACK, picks: Sequence[int] = ()) -> list[Location]:
    """Place a whole group and say where its pods went."""
    hall = Hall(dict(fitting))
    for number in range(size):
        assert isinstance(hall.come("g", size, request, picks[number % len(picks)] if picks else 0), Location)
    return hall.placed["g"]


def used(places: Sequence[Location], level: Level = Level.RACK) -> set[str | None]:
    """Return the names of the domains in use."""
    return {place.domain(level)[1] for place in places}


def test_a_group_goes_to_the_smallest_rack_that_holds_it() -> None:
    """Three pods break the rack of four and leave the one of eight whole; two do not fit it alone."""
    assert used(settle(racks(8, 4, 2), 3)) == {"1"}


def test_a_group_larger_than_any_rack_fills_the_largest_and_ends_in_the_tightest() -> None:
    """Eleven pods take a rack of eight and the one of three, not the other one of eight."""
    assert used(settle(racks(3, 8, 5, 8), 11)) == {"0", "1"}


def test_a_group_that_has_begun_stays_where_it_is() -> None:
    """Though another rack would hold all that is to come."""
    begun = Progress(rest=3, placed=(Location(rack="0"),))
    assert narrow(RACK, begun, racks(2, 8), {}) == frozenset({Location(rack="0")})


def test_a_block_with_a_whole_rack_is_better_than_a_tighter_one_without() -> None:
    """Block a has room for nine and no rack for eight of them; block b has racks for eight."""
    fitting = racks(3, 3, 3, block="a") | racks(8, 8, block="b")
    places = settle(fitting, 8)
    assert (used(places, Level.BLOCK), used(places)) == ({"b"}, {"b0"})


def test_a_rack_that_fits_tightest_is_better_than_such_a_block() -> None:
    """Block a has no more room than its whole rack; block b has a small rack besides, which is all that the group needs."""
    fitting = racks(8, block="a") | racks(8, 3, block="b")
    assert used(settle(fitting, 3)) == {"b1"}


def test_the_farthest_level_comes_first() -> None:
    """Two racks of one block are nearer to each other than two racks of two blocks, though these are fuller."""
    fitting = racks(8, 8, block="a") | racks(8, block="b") | racks(4, block="c")
    assert used(settle(fitting, 12), Level.BLOCK) == {"a"}


def test_levels_nearer_than_asked_for_do_not_matter() -> None:
    """For `block` it is the tightest block that counts, however many racks that takes."""
    fitting = racks(3, 3, 3, block="a") | racks(8, 8, block="b")
    assert used(settle(fitting, 8, GroupRequest("g", level=Level.BLOCK)), Level.BLOCK) == {"a"}


def test_nodes_that_nobody_has_labelled_are_all_the_same() -> None:
    """Without domains there is nothing to choose."""
    assert narrow(GroupRequest("g"), Progress(2), {Location(): 4}, {}) == frozenset({Location()})


def test_nodes_of_an_unknown_rack_come_last() -> None:
    """They may be anywhere: a looser rack is better, and they are no rack for those who require one."""
    assert narrow(RACK, Progress(4), racks(9) | {Location(): 4}, {}) == frozenset({Location(rack="0")})
    assert isinstance(narrow(ONE_RACK, Progress(4), racks(3) | {Location(): 4}, {}), Rejection)


def test_a_required_rack_that_nobody_has_is_a_refusal_that_counts() -> None:
    """It says how much room there is at most, which is the number people need."""
    refused = narrow(ONE_RACK, Progress(5), racks(4, 3), {})
    message = "no rack has room for the group's 5 pods to come, at most for 4"
    assert refused == Rejection(Reason.GROUP, message, remedy="wait or let it relax", resolvable=True)


def test_a_required_rack_where_no_node_has_a_rack_label_says_so() -> None:
    """The reason names the missing label; "room for 0 pods" would not be true."""
    answer = narrow(ONE_RACK, Progress(2), {Location(): 4}, {})
    assert isinstance(answer, Rejection)
    assert answer.message == "no node with room has a known rack"
    assert answer.remedy == "label the nodes with their rack, or make it preferred"


def test_a_required_rack_is_for_life() -> None:
    """A replaced pod of a group waits for room beside the others."""
    begun = Progress(rest=1, placed=(Location(rack="full"),))
    refused = narrow(ONE_RACK, begun, racks(4), {})
    message, remedy = "not in the rack where the pod's group is", "wait until GPUs of that rack are free"
    assert refused == Rejection(Reason.GROUP, message, remedy=remedy, resolvable=True)


def test_a_group_leaves_room_for_one_that_has_begun() -> None:
    """Pods of two groups in turn do not mix, though what is left of the first rack fits the second group tightest."""
    hall = Hall(racks(4, 5))
    for group in "ababaab":
        hall.come(group, {"a": 4, "b": 3}[group], RACK)
    assert (used(hall.placed["a"]), used(hall.placed["b"])) == ({"0"}, {"1"})


@pytest.mark.parametrize(
    ("fitting", "pods", "expected"), [((8, 8), 16, Fit(2, 0)), ((4, 6), 3, Fit(1, 1)), ((), 1, None)]
)
def test_fit(fitting: Sequence[int], pods: int, expected: Fit | None) -> None:
    """All but the last are filled; the last is the tightest."""
    assert fit(fitting, pods) == expected


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)
PICKS = st.lists(st.integers(0, 50), min_size=1, max_size=20)


@pytest.mark.slow
@given(SIZES, st.data(), PICKS)
def test_no_way_to_place_a_group_takes_fewer_racks(sizes: list[int], data: st.DataObject, picks: list[int]) -> None:
    """One pod at a time, and whichever of the offered nodes each takes: as few as the best plan, so no more than first fit."""
    size = data.draw(st.integers(1, sum(sizes)))
    best = next(count for count in range(1, 7) if sum(sorted(sizes)[-count:]) >= size)
    assert len(used(settle(racks(*sizes), size, picks=picks))) == best


@given(SIZES, st.integers(1, 6), st.integers(1, 36))
def test_more_room_never_takes_more_racks(sizes: list[int], more: int, pods: int) -> None:
    """Monotone: another rack can only help."""
    before, after = fit(sizes, pods), fit([*sizes, more], pods)
    assert before is None or (after is not None and after.domains <= before.domains)


@pytest.mark.slow
@given(st.lists(SIZES, min_size=1, max_size=3), st.integers(1, 8), PICKS)
def test_a_group_that_fits_a_block_gets_the_one_that_splits_it_least(
    blocks: list[list[int]], size: int, picks: list[int]
) -> None:
    """One block, and in it the fewest racks that any block would have taken."""
    fitting: Fitting = {}
    for number, sizes in enumerate(blocks):
        fitting |= racks(*sizes, block=str(number))
    fits = [found.domains for sizes in blocks if sum(sizes) >= size and (found := fit(sizes, size))]
    if fits:
        places = settle(fitting, size, picks=picks)
        assert (len(used(places, Level.BLOCK)), len(used(places))) == (1, min(fits))


@pytest.mark.slow
@given(SIZES, st.lists(st.integers(1, 6), min_size=2, max_size=4), st.lists(st.integers(0, 3), max_size=60), PICKS)
def test_groups_that_require_a_rack_never_wait_for_each_other(
    sizes: list[int], groups: list[int], order: list[int], picks: list[int]
) -> None:
    """Whatever order pods come in: in the end each group is there as a whole, in one rack, or has not begun."""
    hall = Hall(racks(*sizes))
    for number, group in enumerate([*order, *sorted(list(range(len(groups))) * 6)]):
        size = groups[group % len(groups)]
        name = str(group % len(groups))
        if any(hall.fitting.values()) and len(hall.placed.get(name, ())) < size:
            hall.come(name, size, ONE_RACK, picks[number % len(picks)])
    for name, places in hall.placed.items():
        assert len(places) in (0, hall.sizes[name])
        assert len(used(places)) <= 1
