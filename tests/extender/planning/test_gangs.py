"""A gang is placed whole or not at all, in the domain that suits it, and each of its pods on GPUs of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.cluster.candidates.holds import Held
from extender.planning import planned_nodes as planned_nodes_module
from extender.planning.queue import NodesOfCluster
from tests.extender.builders import PAIRS, cluster, node
from tests.extender.planning.gangs import (
    IN_ONE_RACK,
    NEAR,
    RACK,
    gang,
    placed,
    planned_nodes,
    racks,
    taken,
    where,
)
from topology.effort import finish
from topology.node.links import Affinity
from topology.request.domains import GroupRequest, Location


def test_a_gang_that_fits_is_placed_whole() -> None:
    """Each member has GPUs that no other one has."""
    assignments = placed(cluster(*racks(r1=3)), gang("g", 2, 2, 2))
    assert where(assignments) == ["r1-0", "r1-1", "r1-2"]
    assert len(set(taken(assignments))) == 6


def test_nothing_is_taken_for_a_gang_that_does_not_fit() -> None:
    """The next one finds all as it was."""
    state = cluster(*racks(r1=3))
    nodes = planned_nodes(state)
    assert placed(state, gang("large", 2, 2, 2, 2), nodes) == ()
    assert len(placed(state, gang("next", 2, 2, 2), nodes)) == 3


def test_a_node_that_takes_long_is_compared_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then from the best one on again."""
    state = cluster(*racks(r1=1))
    answers, nodes, (member,) = [None, None, True], planned_nodes(state), gang("g", 2).members
    monkeypatch.setattr(NodesOfCluster, "lets", lambda *_: answers.pop(0))
    search = nodes.place(member.pod, member.request)
    assert [next(search), next(search)] == [None, None]
    place = finish(search)
    assert place and place[0] == "r1-0"


def test_a_large_gang_is_taken_back_and_kept_for_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turns after so many nodes."""
    monkeypatch.setattr(planned_nodes_module, "FILED_AT_ONCE", 2)
    state, unit = cluster(*racks(r1=6)), gang("g", 2, 2, 2, 2, 2, 2)
    nodes = planned_nodes(state)
    mark = nodes.mark()
    kept = {assignment.node: Held(assignment.gpus) for assignment in placed(state, unit, nodes)}
    assert len([*nodes.undo(mark)]) == len([*nodes.keep(kept)]) == 3
    assert placed(state, unit, nodes) == ()
    assert len(placed(state, unit, nodes, enters=True)) == 6


def test_a_gang_stays_in_one_rack_where_it_can() -> None:
    """In the one that it fits most tightly."""
    state = cluster(*racks(r1=2, r2=4, r3=3))
    assert where(placed(state, gang("g", 2, 2, 2))) == ["r3-0", "r3-1", "r3-2"]


@pytest.mark.parametrize(("group", "pods"), [(NEAR, 4), (IN_ONE_RACK, 0)], ids=["preferred", "required"])
def test_a_gang_that_requires_one_rack_waits_for_it(group: GroupRequest, pods: int) -> None:
    """One that prefers it takes as few racks as it can."""
    assert len(placed(cluster(*racks(r1=3, r2=3)), gang("g", 2, 2, 2, 2, group=group))) == pods


def test_the_next_rack_is_tried_where_more_than_gpus_is_missing() -> None:
    """By GPUs the tighter rack has room. One of its nodes does not have the CPU, so nothing stays on the other one."""
    small = node("r1-small", "rtx-3090-2", labels={RACK: "r1"}, cpu="2")
    state = cluster(small, *racks(cpu="64", r1=1), *racks(cpu="64", r2=3))
    assert where(placed(state, gang("g", 2, 2, cpu="8", group=IN_ONE_RACK))) == ["r2-0", "r2-1"]


def test_pods_of_several_sizes_are_placed_the_largest_first() -> None:
    """A rack with room for the large one and the small ones is enough: not all need room for the largest."""
    state = cluster(*racks(PAIRS, r1=2))
    assert len(placed(state, gang("g", 1, 1, 8, 1, group=IN_ONE_RACK))) == 4


def test_the_rest_of_a_gang_goes_where_its_others_are() -> None:
    """A member that died is planned again in the rack that is required."""
    state = cluster(*racks(r1=2, r2=4))
    unit = replace(gang("g", 2, 2, group=IN_ONE_RACK), placed=(Location(rack="r1"),))
    assert where(placed(state, unit)) == ["r1-0", "r1-1"]
    assert placed(state, replace(gang("g", 2, 2, 2, group=IN_ONE_RACK), placed=(Location(rack="r1"),))) == ()


def test_an_elastic_gang_starts_with_as_many_as_fit() -> None:
    """But not with fewer than its minimum."""
    state = cluster(*racks(r1=3))
    assert len(placed(state, gang("g", 2, 2, 2, 2, least=2))) == 3
    assert placed(state, gang("g", 2, 2, 2, 2, 2, least=4)) == ()


def test_members_that_require_links_get_linked_gpus() -> None:
    """Four pairs on each machine: of three GPUs no linked set exists, and the gang waits."""
    state = cluster(*racks(PAIRS, r1=1))
    pairs = placed(state, gang("g", 2, 2, 2, 2, required=Affinity.NVLINK))
    assert {tuple(sorted(assignment.placement.gpus)) for assignment in pairs} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert placed(state, gang("h", 3, 1, required=Affinity.NVLINK)) == ()


sizes = st.lists(st.sampled_from((1, 2, 4)), min_size=1, max_size=6)
gangs = st.lists(st.tuples(sizes, st.sampled_from((NEAR, IN_ONE_RACK)), st.booleans()), min_size=2, max_size=5)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(gangs, st.integers(0, 1), st.just(1))
@example([([4, 4, 4], NEAR, False)], 0, 1)
def test_no_gpu_is_given_twice_and_no_gang_is_split(
    drawn: list[tuple[list[int], GroupRequest, bool]], first: int, second: int
) -> None:
    """Whatever comes one after the other: a gang has all its members or none, in one rack where that is required."""
    state = cluster(*racks(PAIRS, r1=first, r2=second))
    nodes, every = planned_nodes(state), list[tuple[str, int]]()
    for number, (gpus, group, is_linked) in enumerate(drawn):
        required = Affinity.NVLINK if is_linked else None
        assignments = placed(state, gang(f"g{number}", *gpus, group=group, required=required), nodes)
        assert len(assignments) in (0, len(gpus))
        assert sorted(len(assignment.placement.gpus) for assignment in assignments) in ([], sorted(gpus))
        if group.required and len(gpus) > 1:
            assert len({assignment.node.partition("-")[0] for assignment in assignments}) <= 1
        every += taken(assignments)
    assert len(every) == len(set(every))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(0, 3), st.integers(0, 3), st.sampled_from((NEAR, IN_ONE_RACK)))
def test_a_gang_of_equal_pods_is_placed_wherever_there_is_room(
    pods: int, first: int, second: int, group: GroupRequest
) -> None:
    """Exactly: one that requires a rack if one of them has enough nodes, one that prefers it if all together have."""
    state = cluster(*racks(r1=first, r2=second))
    room = max(first, second) if group.required and pods > 1 else first + second
    assert bool(placed(state, gang("g", *(2,) * pods, group=group))) == (pods <= room)
