"""Jobs are moved for one that finds no place, and do part of their work again."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.placement.engine import Discipline, Event, Finished, JobRefused, Moved, Started, simulate
from benchmarks.placement.jobs import Job
from benchmarks.placement.policies import UnknownPolicy, check_policy, policy_for_pods
from benchmarks.placement.policy import Move, Placed
from benchmarks.placement.scenarios.link_graph import LinkGraph
from benchmarks.placement.scenarios.mixed_fleet import MixedFleet
from benchmarks.placement.scenarios.queueing import moves as moves_of
from benchmarks.placement.scenarios.queueing import run_queue, times
from tests.benchmarks.placement.builders import cluster_of, job

LONG = (0, 4)
"""The jobs that are left when the large one comes, one on each node."""
JOBS = [
    *(job(number, 1, service_s=100.0 if number in LONG else 5.0) for number in range(8)),
    job(9, 4, arrival_s=10.0, service_s=7.0),
]


def run(
    policy: str, jobs: list[Job] = JOBS, node: str = "l40s-4", discipline: Discipline = Discipline.REFUSE
) -> list[Event]:
    """Run eight jobs of one GPU on two nodes of four, and then one that needs a whole node; an hour has 3,600 seconds."""
    cluster = cluster_of(node, node)
    chosen = policy_for_pods(policy, [])(cluster, Random(1))
    return list(simulate(jobs, cluster, chosen, discipline, lambda one, _: one.service_s))


def moves(events: list[Event]) -> list[Move]:
    return [event.move for event in events if isinstance(event, Moved)]


def finished(events: list[Event]) -> dict[int, float]:
    return {event.started.job.number: event.time_s for event in events if isinstance(event, Finished)}


@pytest.mark.parametrize(("still", "moving"), [("gputopo", "gputopo-moves"), ("stock-most", "kai-consolidation")])
def test_a_job_moves_for_one_that_finds_no_place(still: str, moving: str) -> None:
    """Six GPUs are free, three on each node; without moves the job is lost."""
    assert [event.job.number for event in run(still) if isinstance(event, JobRefused)] == [9]
    events = run(moving)
    (move,) = moves(events)
    assert not [event for event in events if isinstance(event, JobRefused)]
    (start,) = (event for event in events if isinstance(event, Started) and event.job.number == 9)
    assert (start.time_s, start.placed[0].node) == (10.0, move.running.placed[0].node)
    assert move.placed[0].node != move.running.placed[0].node


@pytest.mark.parametrize(
    ("policy", "lost_s"),
    [("gputopo-moves", 0.0), ("gputopo-moves-1m", 10.0), ("kai-consolidation", 0.0), ("kai-consolidation-1m", 10.0)],
)
def test_a_moved_job_does_again_what_it_did_since_its_start(policy: str, lost_s: float) -> None:
    """At most for its restart cost, here nothing and a minute; it ran for ten seconds."""
    events = run(policy)
    (move,) = moves(events)
    assert move.lost_s == pytest.approx(lost_s)
    assert finished(events)[move.running.job.number] == pytest.approx(100.0 + lost_s)


@pytest.mark.parametrize("policy", ["gputopo-moves-1m", "kai-consolidation-1m"])
def test_work_is_done_again_at_the_speed_of_the_new_node(policy: str) -> None:
    """One node is slower by half. A job that begins again runs on the other node for as long as if it had begun there."""
    cluster = cluster_of("l40s-4", "l40s-4")

    def run_time(one: Job, placed: Placed) -> float:
        return one.service_s * (1.0, 1.5)[placed[0].node]

    outcome = run_queue(JOBS, cluster, policy_for_pods(policy, [])(cluster, Random(1)), run_time)
    (moved,) = outcome.moved
    moved_job, before = moved.move.running.job, moved.move.running.placed
    whole_s = run_time(moved_job, moved.move.placed)
    assert outcome.ended[moved_job.number] == pytest.approx(10.0 + whole_s)
    assert moves_of(outcome)["gpu_h_again"] * 3600 == pytest.approx(10.0 * whole_s / run_time(moved_job, before))


@pytest.mark.parametrize(("policy", "lost_s"), [("repacking", 0.0), ("repacking-1m", 60.0)])
def test_repacking_empties_a_node_that_is_little_used(policy: str, lost_s: float) -> None:
    """Every five minutes: eight jobs fill one node, one of them ends, and the ninth job comes from the other node."""
    jobs = [job(number, 1, service_s=100.0 if number == 3 else 1_000.0) for number in range(9)]
    (moved,) = (event for event in run(policy, jobs, "dgx-1v") if isinstance(event, Moved))
    assert (moved.time_s, moved.move.running.job.number, moved.move.lost_s) == (300.0, 8, lost_s)
    assert moved.move.placed[0].node != moved.move.running.placed[0].node


def test_repacking_moves_nothing_to_where_there_is_no_room() -> None:
    """No job of the full node ends."""
    assert not moves(run("repacking", [job(number, 1, service_s=1_000.0) for number in range(9)], "dgx-1v"))


@pytest.mark.parametrize("policy", ["gputopo-moves", "kai-consolidation"])
def test_room_is_made_for_a_waiting_job_once_enough_has_ended(policy: str) -> None:
    """When the large job comes all GPUs are taken, and later six are free, three on each node."""
    early = [*JOBS[:-1], job(9, 4, arrival_s=1.0, service_s=7.0)]
    events = run(policy, early, discipline=Discipline.SKIP)
    (start,) = (event for event in events if isinstance(event, Started) and event.job.number == 9)
    assert (start.time_s, len(moves(events))) == (5.0, 1)


@pytest.mark.parametrize("name", ["gputopo-moves", "kai-consolidation"])
def test_completion_times_have_what_was_done_again(name: str) -> None:
    """One of nine jobs runs for ten seconds more, on one GPU."""
    both = []
    for policy in (name, f"{name}-1m"):
        cluster = cluster_of("l40s-4", "l40s-4")
        outcome = run_queue(
            JOBS, cluster, policy_for_pods(policy, [])(cluster, Random(1)), lambda one, _: one.service_s
        )
        both.append(times(outcome) | moves_of(outcome))
    free, dear = both
    assert (free["moved"], free["gpu_h_again"]) == (1, 0)
    assert dear["moved"] == 1
    assert dear["gpu_h_again"] * 3600 == pytest.approx(10.0)
    assert (dear["jct_h_mean"] - free["jct_h_mean"]) * 3600 == pytest.approx(10.0 / len(JOBS))


@pytest.mark.slow
def test_moves_save_large_jobs_and_cost_less_than_they_bring() -> None:
    """In link-graph, where a mean job takes an hour, even if a moved one does half an hour of its work again."""
    without, free, dear = (_sums(policy) for policy in ("gputopo", "gputopo-moves", "gputopo-moves-30m"))
    assert (without["moved"], free["gpu_h_again"]) == (0, 0)
    assert free["lost_4"] < without["lost_4"]
    assert 0 < dear["gpu_h_again"] < dear["gpu_h_served"] - without["gpu_h_served"]


def _sums(policy: str) -> dict[str, float]:
    return {row.metric: row.value for row in LinkGraph(1_000).run("dgx-1v/load-0.82", policy, 1)}


@pytest.mark.parametrize(
    "policy", [pytest.param("gputopo-moves-5m", marks=pytest.mark.slow), "kai-consolidation-5m", "repacking-5m"]
)
def test_a_queue_for_a_mixed_fleet_counts_moves_and_work_done_again(policy: str) -> None:
    """A moved job does at most five minutes again on each of its at most eight GPUs."""
    measured = {row.metric: row.value for row in MixedFleet(300).run("load-0.95/measured", policy, 1) if row.x is None}
    assert 0 < measured["gpu_h_again"] <= measured["moved"] * 8 * 5 / 60


def test_restart_costs_are_in_the_name_of_the_policy() -> None:
    """In minutes; other forms are refused."""
    for name in (
        "gputopo-moves",
        "gputopo-moves-30m",
        "gputopo-moves-5m-told",
        "kai-consolidation-5m",
        "repacking-30m",
    ):
        check_policy(name)
    for name in ("gputopo-moves-m", "gputopo-moves-5", "gputopo-observe-moves"):
        with pytest.raises(UnknownPolicy):
            check_policy(name)
