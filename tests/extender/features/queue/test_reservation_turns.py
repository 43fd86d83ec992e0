"""GPUs are kept for one gang after the other, and for no namespace so long that others never get them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pytest

from extender.features.queue.reservation_turns import ReservationTurns
from extender.planning.reservations import Reservation
from extender.planning.units import Unit
from tests.extender.builders import cluster
from tests.extender.planning.gangs import gang, placed, racks

TURN = 100.0
STEP = 10.0


def kept_for(unit: Unit) -> Reservation:
    """Return a reservation; where it is does not matter."""
    pods = placed(cluster(*racks(r1=2)), unit)
    return Reservation(unit.key, unit.namespace, pods, None)


def owners(turns: ReservationTurns, units: Sequence[Unit], seconds: float) -> list[str]:
    """Return for which gang GPUs are kept at each step, where nothing ever starts; they are in their order."""
    kept, reservations = list[str](), {unit.key: kept_for(unit) for unit in units if unit.is_gang}
    for step in range(int(seconds / STEP)):
        may_keep_for = turns.at(step * STEP, units)
        owner = next((unit for unit in units if may_keep_for(unit)), None)
        turns.keep(reservations[owner.key] if owner else None, step * STEP)
        kept.append(owner.key if owner else "")
    return kept


def _turns(kept: Sequence[str]) -> list[str]:
    return [owner for owner, _ in groupby(owner for owner in kept if owner)]


POD = gang("pod", 1, namespace="other")


def test_gangs_of_one_namespace_have_their_turns_one_after_the_other() -> None:
    """While nobody else waits, something is kept at any time."""
    kept = owners(ReservationTurns(TURN), [gang("a", 2, 2), gang("b", 2, 2)], 10 * TURN)
    assert kept.index("b") == TURN / STEP + 1
    assert set(kept) == {"a", "b"} and min(kept.count("a"), kept.count("b")) >= 2 * TURN / STEP


def test_where_there_is_no_time_for_it_nothing_is_kept() -> None:
    """An operator sets it to 0 where pods do not state how long they run: kept GPUs would stay idle."""
    assert set(owners(ReservationTurns(0.0), [gang("a", 2, 2), gang("b", 2, 2)], 10 * TURN)) == {""}


@pytest.mark.slow
def test_a_namespace_with_many_gangs_does_not_keep_gpus_for_ever() -> None:
    """None of them ever starts. While a pod of another namespace waits, GPUs are kept for a quarter of the time at most."""
    many = [gang(f"g{number}", 2, 2, namespace="evil") for number in range(50)]
    kept = owners(ReservationTurns(TURN), [*many, POD], 100 * TURN)
    assert 0.1 * len(kept) < sum(map(bool, kept)) < 0.25 * len(kept)
    turns = "".join("x" if owner else " " for owner in kept).split()
    assert max(map(len, turns)) <= TURN / STEP + 2
    assert len(_turns(kept)) >= len(turns), "two turns of one gang in a row"


def test_another_namespace_has_its_turn_meanwhile() -> None:
    """Although its gang is behind them in the order."""
    units = [
        *(gang(f"g{number}", 2, 2, namespace="evil") for number in range(5)),
        gang("ours", 2, 2, namespace="other"),
    ]
    assert "ours" in owners(ReservationTurns(TURN), units, 2 * TURN)


def test_a_gang_that_starts_ends_the_pauses_of_its_namespace() -> None:
    """What was kept for it has served its purpose."""
    turns, first, second = ReservationTurns(TURN), gang("a", 2, 2), gang("b", 2, 2)
    owners(turns, [first, POD], 1.2 * TURN)
    turns.keep(kept_for(first), 1.2 * TURN)
    assert not turns.at(1.3 * TURN, [second, POD])(second)
    turns.started(first)
    assert turns.at(1.3 * TURN, [second, POD])(second)
