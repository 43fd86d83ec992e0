"""On random fragmented fleets no pod is evicted in vain, also where planners die."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.extender.features.moves.fleets import FleetOfParts, FragmentedFleet

pytestmark = pytest.mark.slow
FLEETS, LONG = 6, 1000
GANGS = 0, 0, 3
"""Members of the gang that waits in a fleet, in turn; 0: single pods wait."""
KILLED, LONG_KILLED = 4, 110


def numbers(config: pytest.Config, few: int, many: int) -> range:
    return range(many if config.getoption("--long") else few)


@pytest.mark.parametrize("kind", [FragmentedFleet, FleetOfParts])
async def test_no_pod_is_evicted_in_vain_and_all_that_a_plan_helps_run(
    pytestconfig: pytest.Config, kind: type[FragmentedFleet]
) -> None:
    """Every pod that was moved has its new place, and nothing is reserved in the end. The site checks the budgets."""
    outcomes, moved = Counter[str](), 0
    for seed in numbers(pytestconfig, FLEETS, LONG):
        fleet = kind(seed, GANGS[seed % len(GANGS)])
        await fleet.play()
        assert (seed, fleet.helped(), fleet.in_vain(), fleet.incomplete()) == (seed, [], [], {})
        assert fleet.misplaced() == [], seed
        assert fleet.site.reservations() == {}, seed
        outcomes += fleet.site.outcomes
        moved += len(fleet.site.evicted)
    print(dict(outcomes), moved)
    assert moved >= outcomes["move_plans served"] > outcomes["move_plans changed"] == 0


@pytest.mark.parametrize("kind", [FragmentedFleet, FleetOfParts])
async def test_planners_that_die_leave_no_reservation_and_lose_no_pod(
    pytestconfig: pytest.Config, kind: type[FragmentedFleet]
) -> None:
    """What had been evicted waits or runs; what waits was not left without a planner."""
    outcomes, deaths = Counter[str](), 0
    for seed in numbers(pytestconfig, KILLED, LONG_KILLED):
        fleet = kind(seed, GANGS[seed % len(GANGS)])
        await fleet.play(deaths=2)
        pods = Counter((pod["metadata"].get("labels") or {}).get("app", "") for pod in fleet.site.pods())
        del pods[""]
        assert (seed, dict(pods)) == (seed, fleet.site.wanted())
        assert fleet.site.reservations() == {}, seed
        assert fleet.helped() == [], seed
        outcomes += fleet.site.outcomes
        deaths += fleet.site.deaths
    print(dict(outcomes), deaths)
    assert deaths > 0
