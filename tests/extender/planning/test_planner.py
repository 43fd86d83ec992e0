"""Units start in their order, whole or not at all; the first gang without room has GPUs kept until it can start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.candidates.holds import Held
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.planning import planner as planner_module
from extender.planning.gangs import Places, place_unit
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.planner import (
    FAILURES,
    PASSED_OVER_AT_ONCE,
    RESERVATIONS_TRIED,
    PlanContext,
    QueuePlan,
    Wait,
    plan_units,
)
from extender.planning.reservations import Running
from extender.planning.units import Assignment, PendingPod, Unit
from tests.extender.builders import cluster, gpus, pod, running
from tests.extender.planning.gangs import IN_ONE_RACK, NEAR, gang, placed, places_of, planned_nodes, racks, taken
from topology.effort import Search, finish
from topology.request.domains import GroupRequest
from topology.request.gpu_request import GpuRequest

SMALL = "rtx-3090-2"
NOW = 100.0


def plan(state: ClusterState, *units: Unit, running: Sequence[Running] = ()) -> QueuePlan:
    """Plan these units in this order."""
    context = PlanContext(NOW, lambda _: places_of(state), lambda: running)
    return finish(plan_units(planned_nodes(state), units, context))


def started(made: QueuePlan) -> list[str]:
    return [start.unit.key for start in made.starts]


def busy(*nodes: str) -> list[Node | Pod]:
    """Return pods that hold all GPUs of these nodes."""
    return [running(f"on-{name}", name, *gpus(name, 0, 1, machine_name=SMALL)) for name in nodes]


def until(node: str, ends_at: float | None = None) -> Running:
    return Running(node, Held(0b11), ends_at)


def test_a_unit_without_room_does_not_hold_up_those_behind_it() -> None:
    """A pod of two GPUs waits, and one of one GPU starts."""
    state = cluster(*racks(r1=1), running("there", "r1-0", *gpus("r1-0", 0, machine_name=SMALL)))
    made = plan(state, gang("large", 2), gang("small", 1))
    assert (started(made), made.waits) == (["small"], {"large": Wait.NO_ROOM})
    assert made.reservation is None


def test_a_gang_gets_the_first_request_that_all_of_its_pods_find_room_for() -> None:
    """One node has two free GPUs, and two have one; nothing is kept of what it cannot use."""
    state = cluster(*racks(r1=3), *(running(f"p{n}", f"r1-{n}", *gpus(f"r1-{n}", 0, machine_name=SMALL)) for n in "01"))
    unit = gang("g", 2, 2)
    either = [replace(member, fallbacks=(GpuRequest.plain(1),)) for member in unit.members]
    made = plan(state, replace(unit, members=tuple(either)))
    assert [len(assignment.placement.gpus) for assignment in made.starts[0].assignments] == [1, 1]
    assert made.starts[0].unit.gpus == 2 and made.reservation is None


def test_a_unit_counts_once_for_each_request_that_finds_no_room() -> None:
    """So a namespace costs no more for what its pods accept instead."""
    state = cluster(*racks(r1=1), *busy("r1-0"))
    large = tuple(GpuRequest.plain(count) for count in range(3, 10))
    units = [gang(f"g{at}", 2, cpu=str(at + 1)) for at in range(FAILURES // 8 + 1)]
    accept = [replace(unit, members=(replace(unit.members[0], fallbacks=large),)) for unit in units]
    assert list(plan(state, *accept).waits.values())[-2:] == [Wait.NO_ROOM, Wait.NOT_REACHED]


def test_a_request_that_found_no_room_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else its unit accepts; so it counts once, however many units start with their second request."""
    monkeypatch.setattr(planner_module, "FAILURES", 3)
    looks = list[int]()

    def counted(nodes: PlannedNodes, places: Places, unit: Unit, *, enters: bool) -> Search[tuple[Assignment, ...]]:
        looks.append(unit.gpus)
        return place_unit(nodes, places, unit, enters=enters)

    monkeypatch.setattr(planner_module, "place_unit", counted)
    units = [gang(f"u{number}", 8) for number in range(7)]
    accepts = [GpuRequest.plain(1)], [GpuRequest.plain(4), GpuRequest.plain(1)]
    either = [
        replace(unit, members=(replace(unit.members[0], fallbacks=(*accepts[number % 2],)),))
        for number, unit in enumerate(units)
    ]
    made = plan(cluster(*racks(r1=3)), *either)
    assert started(made) == [f"u{number}" for number in range(6)]
    assert made.waits == {"u6": Wait.NO_ROOM}
    assert Counter(looks) == {8: 1, 4: 1, 1: 7}


def test_units_that_are_passed_over_leave_others_their_turns() -> None:
    """The first one finds no room, and the others are like it."""
    state = cluster(*racks(r1=1), *busy("r1-0"))
    (member,) = gang("u", 2).members
    units = (Unit(f"u{number}", "ml", 0, 0.0, (member,)) for number in range(10 * PASSED_OVER_AT_ONCE))
    search, steps = plan_units(planned_nodes(state), units, PlanContext(NOW)), 0
    for _ in search:
        steps += 1
    assert steps >= 10


def test_pods_that_accept_other_devices_are_not_alike() -> None:
    """One that finds no room says nothing of the other."""
    member = gang("a", 2).members[0]
    others = replace(member, accepted_devices="H100"), replace(member, fallbacks=(GpuRequest.plain(1),))
    assert len({item.kind for item in (member, *others)}) == 3


def test_gpus_are_kept_for_the_first_gang_that_has_no_room() -> None:
    """Pods behind it do not get the last free node, for which it waits together with another one."""
    state = cluster(*racks(r1=2), *busy("r1-0"))
    made = plan(state, gang("g", 2, 2), gang("h", 2, 2), gang("later", 2), running=[until("r1-0")])
    assert made.reservation and made.reservation.owner == "g"
    assert made.reservation.kept.keys() == {"r1-0", "r1-1"}
    assert made.waits == {"g": Wait.RESERVED, "h": Wait.NO_ROOM, "later": Wait.NO_ROOM}


def test_gpus_that_are_kept_already_stay_kept() -> None:
    """Whoever is planned: a pod that has just come, or the gang itself, which still has no room."""
    state, unit = cluster(*racks(r1=2), *busy("r1-0")), gang("g", 2, 2)
    kept = plan(state, unit, running=[until("r1-0")]).reservation
    context = PlanContext(NOW, lambda _: places_of(state), kept=kept)
    made = finish(plan_units(planned_nodes(state), [gang("new", 2), unit], context))
    assert made == QueuePlan((), kept, {"new": Wait.NO_ROOM, "g": Wait.RESERVED})


def test_what_comes_before_the_gang_is_served_all_the_same() -> None:
    """GPUs are kept from those behind it alone."""
    state = cluster(*racks(r1=2), *busy("r1-0"))
    assert started(plan(state, gang("earlier", 2), gang("g", 2, 2), running=[until("r1-0")])) == ["earlier"]


@pytest.mark.parametrize(
    ("expected_seconds", "ends_at", "starts"),
    [(50.0, NOW + 50, True), (51.0, NOW + 50, False), (None, NOW + 50, False), (1.0, None, False)],
    ids=["ends-before", "ends-after", "says-nothing", "nobody-knows-when-the-gang-starts"],
)
def test_a_pod_has_kept_gpus_only_if_it_ends_before_the_gang_starts(
    expected_seconds: float | None, ends_at: float | None, starts: bool
) -> None:
    """By what it says itself, and what the pods say that the gang waits for."""
    state = cluster(*racks(r1=2), *busy("r1-0"))
    short = gang("short", 2, expected_seconds=expected_seconds)
    made = plan(state, gang("g", 2, 2), short, running=[until("r1-0", ends_at)])
    assert ("short" in started(made)) == starts
    assert made.reservation and made.reservation.ready_at == ends_at


def test_pods_that_leave_the_kept_gpus_alone_go_on() -> None:
    """A rack that the gang does not need is open to all."""
    state = cluster(*racks(r1=2, r2=1), *busy("r1-0"))
    made = plan(state, gang("g", 2, 2, group=IN_ONE_RACK), gang("later", 2), running=[until("r1-0")])
    assert [assignment.node for start in made.starts for assignment in start.assignments] == ["r2-0"]


def test_the_gpus_are_kept_on_which_the_gang_starts_soonest() -> None:
    """Of two full racks the one whose pods are expected to end first."""
    state = cluster(*racks(r1=2, r2=2), *busy("r1-0", "r1-1", "r2-0", "r2-1"))
    ends = [until("r1-0", 200.0), until("r1-1", 900.0), until("r2-0", 300.0), until("r2-1", 400.0)]
    made = plan(state, gang("g", 2, 2, group=IN_ONE_RACK), running=ends)
    assert made.reservation
    assert (set(made.reservation.kept), made.reservation.ready_at) == ({"r2-0", "r2-1"}, 400.0)


def test_where_nobody_says_how_long_it_runs_the_rack_with_the_fewest_busy_gpus_is_kept() -> None:
    """There the fewest pods have to end."""
    state = cluster(*racks(r1=3, r2=3), *busy("r1-0", "r1-1", "r2-1"))
    ends = [until("r1-0"), until("r1-1"), until("r2-1")]
    made = plan(state, gang("g", 2, 2, 2, group=IN_ONE_RACK), running=ends)
    assert made.reservation and made.reservation.kept.keys() == {"r2-0", "r2-1", "r2-2"}


def test_nothing_is_kept_for_a_gang_that_the_empty_cluster_could_not_take() -> None:
    """It would be kept for ever."""
    state = cluster(*racks(r1=2), *busy("r1-0"))
    made = plan(state, gang("g", 2, 2, 2), gang("later", 2), running=[until("r1-0")])
    assert (made.reservation, started(made)) == (None, ["later"])


@pytest.mark.parametrize(("namespace", "owner"), [("ml", None), ("ops", "g")], ids=["same", "other"])
def test_gangs_that_fit_nowhere_cost_only_their_own_namespace_the_search_for_gpus_to_keep(
    namespace: str, owner: str | None
) -> None:
    """Each such search looks at all nodes, so that a plan makes few of them for one tenant."""
    state = cluster(*racks(r1=2), *busy("r1-0"))
    vain = [gang(f"x{number}", *[2] * (3 + number)) for number in range(RESERVATIONS_TRIED)]
    made = plan(state, *vain, gang("g", 2, 2, namespace=namespace), running=[until("r1-0")])
    assert (made.reservation and made.reservation.owner) == owner


def test_one_namespaces_failures_cost_no_other_its_place() -> None:
    """Units that nothing could take come first, each different; the other namespace's pod behind them starts."""
    state = cluster(*racks(r1=1))
    theirs = [gang(f"e{number}", 2, cpu=str(number + 1), namespace="evil") for number in range(FAILURES + 2)]
    full = cluster(*racks(r1=1, cpu="1"))
    made = plan(full, *theirs[1:], gang("victim", 2))
    assert started(made) == ["victim"]
    assert made.waits[f"e{FAILURES + 1}"] is Wait.NOT_REACHED
    assert started(plan(state, *theirs[1:2])) == ["e1"]


units = st.lists(
    st.tuples(
        st.lists(st.sampled_from((1, 1, 2)), min_size=1, max_size=4),
        st.sampled_from((NEAR, IN_ONE_RACK)),
        st.sampled_from((None, 10.0, 60.0)),
    ),
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=40)
@given(units, st.integers(0, 2), st.integers(0, 2), st.sets(st.sampled_from(("r1-0", "r1-1", "r2-0"))))
def test_the_laws_of_a_plan(
    drawn: list[tuple[list[int], GroupRequest, float | None]], first: int, second: int, occupied: set[str]
) -> None:
    """No GPU twice; whole or absent; no unit is passed over that had room; kept GPUs go only to units that end in time."""
    nodes = racks(r1=first, r2=second)
    names = sorted(occupied & {node.metadata.name for node in nodes})
    state = cluster(*nodes, *busy(*names))
    every = [
        gang(f"u{number}", *sizes, group=group, expected_seconds=seconds)
        for number, (sizes, group, seconds) in enumerate(drawn)
    ]
    made = plan(state, *every, running=[until(name, NOW + 30) for name in names])
    given_away = [gpu for start in made.starts for gpu in taken(start.assignments)]
    assert len(given_away) == len(set(given_away))
    assert all(len(start.assignments) == len(start.unit.members) for start in made.starts)
    assert sorted([*started(made), *made.waits]) == sorted(unit.key for unit in every)
    kept = made.reservation.kept if made.reservation else {}
    starts, is_kept = {start.unit.key: start for start in made.starts}, False
    rest = planned_nodes(state)
    for unit in every:
        admitted = not is_kept or (unit.expected_seconds is not None and unit.expected_seconds <= 30)
        if unit.key in starts:
            assert placed(state, unit, rest, enters=admitted)
            if not admitted:
                assert not any(
                    kept[node].gpus >> gpu & 1 for node, gpu in taken(starts[unit.key].assignments) if node in kept
                )
        else:
            assert not placed(state, unit, rest, enters=admitted)
        if made.reservation and unit.key == made.reservation.owner:
            is_kept = True
            finish(rest.keep(kept))


def test_pods_that_accept_the_same_devices_are_of_one_kind_in_their_namespace_alone() -> None:
    """The selectors of each namespace are evaluated for so long only: those of another one may still find a place."""

    def kind(namespace: str, devices: Hashable) -> Hashable:
        item = pod("p")
        item = msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace=namespace))
        return PendingPod(item, GpuRequest.plain(1), accepted_devices=devices).kind

    assert kind("a", ("selector",)) != kind("b", ("selector",))
    assert kind("a", ()) == kind("b", ())
