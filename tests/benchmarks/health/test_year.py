"""A year of sick GPUs: what holds of every policy, and what is said of each."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest

from agent.health.evidence import Lost, RecoveryAction, RecoveryRequested, Xid
from benchmarks.cli import app
from benchmarks.health.year.incidents import DAY, HOUR, FleetYear, Incident, draw_incidents
from benchmarks.health.year.kinds import KINDS, Cure, IncidentKind
from benchmarks.health.year.operators import Operator
from benchmarks.health.year.policies import POLICIES, FixedTimer, NoHealthCheck, NvidiaPluginHealthPolicy
from benchmarks.health.year.reckoning import GpuHourTotals
from benchmarks.health.year.replay import replay
from tests.invoking import call

FLEET = FleetYear(nodes=1, gpus_per_node=8, days=28)
OPERATOR = Operator()
OFTEN = [replace(kind, per_gpu_hour=kind.per_gpu_hour * 200) for kind in KINDS if not kind.name.startswith("program ")]
EVERY = pytest.mark.parametrize("policy", POLICIES)


def kind(name: str) -> IncidentKind:
    """Return the one kind whose name begins so."""
    (found,) = (each for each in KINDS if each.name.startswith(name))
    return found


def one(name: str, policy: str, t: float = HOUR, operator: Operator = OPERATOR, seed: int = 1) -> GpuHourTotals:
    """Let one thing befall GPU 3 of one node."""
    incident = Incident(t, 3, kind(name), peer=5 if kind(name).is_of_a_link else None)
    return replay(FLEET, {0: [incident]}, POLICIES[policy], operator, seed)


@EVERY
def test_a_calm_year_costs_nothing(policy: str) -> None:
    """All hours are those of healthy GPUs that are in."""
    assert replay(FLEET, {}, POLICIES[policy], OPERATOR, 1) == GpuHourTotals(well_in=FLEET.gpu_hours)


@pytest.mark.slow
@EVERY
def test_no_hour_is_lost_from_the_books(policy: str) -> None:
    """The four kinds of hours are all there are, and how long GPUs are sick is no policy's doing."""
    fleet = replace(FLEET, nodes=10)
    incidents = draw_incidents(fleet, OFTEN, OPERATOR, 1)
    account = replay(fleet, incidents, POLICIES[policy], OPERATOR, 1)
    idle = replay(fleet, incidents, POLICIES["no health check"], OPERATOR, 1)
    assert account.gpu_hours == pytest.approx(fleet.gpu_hours)
    assert account.sick_in + account.sick_out == pytest.approx(idle.sick_in + idle.sick_out)
    assert account.sick_in + account.sick_out > 1000
    assert sum(account.offered_by_kind.values()) == pytest.approx(account.sick_in)
    assert sum(account.lost_by_kind.values()) == pytest.approx(account.well_out)
    assert sum(account.ended_by_kind.values()) == account.jobs_ended <= account.jobs_on_sick


@pytest.mark.slow
@EVERY
def test_a_year_is_told_by_its_seed(policy: str) -> None:
    """The same seed, the same figures; another, others."""
    fleet = replace(FLEET, nodes=5)
    accounts = [
        replay(fleet, draw_incidents(fleet, OFTEN, OPERATOR, seed), POLICIES[policy], OPERATOR, seed)
        for seed in (1, 1, 2)
    ]
    assert accounts[0] == accounts[1] != accounts[2]


@pytest.mark.parametrize(
    "name", ["uncorrectable error in SRAM", "firmware", "off the bus", "broken, off the bus", "memory row not replaced"]
)
@pytest.mark.parametrize("policy", ["gputopo", "gputopo, old driver"])
def test_a_gpu_that_needs_a_repair_is_never_offered_before(name: str, policy: str) -> None:
    """From the error on until people have done what cures it."""
    for each in (each for each in KINDS if each.name.startswith(name)):
        account = one(each.name, policy)
        assert (account.sick_in, account.jobs_on_sick, account.taken_out) == (0.0, 0, 1)
        assert account.sick_out == pytest.approx(OPERATOR.seconds_until_well(each) / HOUR)
        assert account.well_out == 0.0


@EVERY
def test_a_programs_error_costs_no_policy_a_gpu(policy: str) -> None:
    """31, 43 and 45 are known to everybody."""
    assert one("program reads", policy).well_out == 0.0


def test_what_the_plugin_does_not_know_stays_out_until_the_next_round() -> None:
    """A row that was replaced leaves the GPU well."""
    assert one("memory row replaced", "nvidia-plugin").well_out == pytest.approx(7 * 24 - 1)
    assert one("memory row replaced", "gputopo").well_out == 0.0
    assert one("memory row replaced", "five-minute timer").well_out == pytest.approx(300 / 3600)


def test_a_round_each_day_costs_the_plugin_a_day() -> None:
    """The interval is the operator's, and the loss follows it."""
    daily = replace(OPERATOR, round=DAY)
    assert one("memory row replaced", "nvidia-plugin", operator=daily).well_out == pytest.approx(23)


@EVERY
def test_nobody_lets_in_what_fails_the_tests(policy: str) -> None:
    """However often people look."""
    often = one("firmware", policy, operator=replace(OPERATOR, round=HOUR / 2))
    assert often.sick_in == one("firmware", policy).sick_in


def test_time_reopens_what_only_a_repair_cures_where_there_is_only_a_timer() -> None:
    """So job after job ends on it until people come."""
    timer, ours = one("firmware", "five-minute timer"), one("firmware", "gputopo")
    assert timer.jobs_ended > 5 > ours.jobs_ended == 0
    assert timer.taken_out == timer.jobs_ended + 1


def test_ours_is_worse_where_the_driver_asks_for_nothing_and_the_gpu_is_broken() -> None:
    """It believes the driver; the plugin waits for people."""
    name = "broken, the driver asks for nothing"
    ended = {policy: sum(one(name, policy, seed=seed).jobs_ended for seed in range(20)) for policy in POLICIES}
    assert ended["gputopo"] > ended["nvidia-plugin"]
    assert ended["gputopo"] < ended["five-minute timer"]


@EVERY
def test_nobody_sees_what_nobody_is_told(policy: str) -> None:
    """A GPU that reckons wrongly is offered until it is found, and ends no job."""
    account = one("reckons wrongly", policy)
    assert (account.jobs_ended, account.taken_out) == (0, 0)
    assert account.sick_in == pytest.approx((14 + 3) * 24)


@pytest.mark.slow
def test_one_job_at_a_time_is_put_on_a_sick_gpu() -> None:
    """A new one after each, as often as in a fleet that is in use for 83 % of the time, reboots or not."""
    accounts = [one("reckons wrongly", "gputopo", seed=seed) for seed in range(20)]
    jobs, hours = (sum(getattr(each, name) for each in accounts) for name in ("jobs_on_sick", "sick_in"))
    assert jobs == pytest.approx(hours * 0.83, rel=0.05)


def test_a_link_that_both_ends_tell_of_costs_ours_nothing() -> None:
    """The plugin takes out both GPUs."""
    assert one("link flaps, told at both", "gputopo").well_out == 0.0
    assert one("link flaps, told at both", "nvidia-plugin").well_out == pytest.approx(2 * (7 * 24 - 1))


def test_a_lemon_passes_tests_and_is_let_in_again() -> None:
    """Only its replacement ends it, whatever the policy; what needs a reset each time is reset each time."""
    lemon = "lemon that needs a reset"
    accounts = {policy: one(lemon, policy, operator=replace(OPERATOR, lemon=14 * DAY)) for policy in POLICIES}
    assert {round(each.sick_in + each.sick_out) for each in accounts.values()} == {14 * 24}
    assert all(account.jobs_ended > 5 for account in accounts.values())


def test_a_gpu_that_is_lost_is_not_listed_after_a_reboot() -> None:
    """Even where nobody checks anything."""
    policy = NoHealthCheck()
    policy.told(3, Lost(), 0.0)
    assert policy.takes_pods(3, 1.0)
    policy.restarted(2.0)
    assert not policy.takes_pods(3, 2.0)
    policy.replaced(3, 3.0)
    policy.restarted(3.0)
    assert policy.takes_pods(3, 3.0)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 109])
def test_the_plugin_passes_over_six_errors(number: int) -> None:
    """Any other, known or not, takes the GPU out until it starts anew."""
    policy = NvidiaPluginHealthPolicy()
    policy.told(0, Xid(number), 0.0)
    assert policy.takes_pods(0, 0.0)
    policy.told(0, Xid(number + 1000), 0.0)
    policy.told(0, RecoveryRequested(RecoveryAction.NONE), 1.0)
    assert not policy.takes_pods(0, 1e9)
    policy.restarted(1e9)
    assert policy.takes_pods(0, 1e9)


def test_the_timer_counts_from_the_last_error() -> None:
    """And announces when it ends."""
    policy = FixedTimer()
    policy.told(0, Xid(79), 0.0)
    policy.told(0, Xid(79), 200.0)
    assert policy.next_change(200.0) == 500.0
    assert (policy.takes_pods(0, 499.0), policy.takes_pods(0, 500.0)) == (False, True)
    assert policy.next_change(500.0) == math.inf


def test_incidents_come_as_often_as_their_rate_says() -> None:
    """Within five deviations; the same for all that is not added by another kind."""
    fleet = FleetYear(nodes=50)
    incidents = [each for of_node in draw_incidents(fleet, KINDS, OPERATOR, 3).values() for each in of_node]
    for each in KINDS:
        expected = each.per_gpu_hour * fleet.gpu_hours
        number = sum(incident.kind is each for incident in incidents)
        assert abs(number - expected) <= 5 * math.sqrt(expected) + 1
    alone = [each for of_node in draw_incidents(fleet, KINDS[:1], OPERATOR, 3).values() for each in of_node]
    assert alone == [each for each in incidents if each.kind is KINDS[0]]


def test_a_sick_gpu_does_not_fall_sick() -> None:
    """What would befall it meanwhile is left out, so that it is well when people say so."""
    fleet = FleetYear(nodes=2, gpus_per_node=2, days=365)
    sick = [replace(each, per_gpu_hour=1e-2) for each in KINDS if each.cure is Cure.REPLACEMENT]
    for of_node in draw_incidents(fleet, sick, OPERATOR, 1).values():
        for gpu in range(2):
            own = [each for each in of_node if each.gpu == gpu]
            assert len(own) > 5
            for earlier, later in pairwise(own):
                assert later.t >= earlier.t + OPERATOR.seconds_until_well(earlier.kind)


def test_every_rate_is_published_or_says_that_it_is_assumed() -> None:
    """What is assumed can be left out."""
    for each in KINDS:
        assert "arXiv" in each.source or each.is_assumed
        assert "assumed" in each.source or "arXiv" in each.source


def test_the_command_prints_all_policies_and_where_figures_come_from() -> None:
    """Text for people, JSON with sources for programs; progress on stderr."""
    asked = ("health-year", "--nodes", "2", "--days", "30", "--seeds", "2", "--published-only")
    text = call(app, *asked, "--by-kind").stdout
    assert [name for name in POLICIES if f"\n{name} " not in text] == []
    assert "memory row replaced" in text
    assert "assumed" not in text
    found = json.loads(call(app, *asked, "-o", "json").stdout)
    assert [(row["policy"], row["seed"]) for row in found["rows"]] == [(p, s) for s in (1, 2) for p in POLICIES]
    assert {each["name"] for each in found["kinds"]} == {each.name for each in KINDS if not each.is_assumed}
