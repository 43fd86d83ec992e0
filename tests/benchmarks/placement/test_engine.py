"""The event loop: who starts when under each discipline, and that nothing is ever given twice."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement.cluster import Allotment
from benchmarks.placement.engine import Discipline, Event, Finished, JobRefused, Started, simulate
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from tests.benchmarks.placement.builders import cluster_of, job


def run(jobs: list[Job], discipline: Discipline, policy: str = "stock-most") -> list[Event]:
    """Run the jobs on one machine of four GPUs."""
    cluster = cluster_of("l40s-4")
    chosen = policy_for_pods(policy, [])(cluster, Random(1))
    return list(simulate(jobs, cluster, chosen, discipline, lambda job, _: job.service_s))


def starts(events: list[Event]) -> dict[int, float]:
    """Return job → when it started."""
    return {event.job.number: event.time_s for event in events if isinstance(event, Started)}


JOBS = [job(0, 3), job(1, 4, arrival_s=1), job(2, 1, arrival_s=2)]


def test_without_a_queue_what_does_not_fit_is_lost() -> None:
    """The second job finds one GPU free and is refused; the third one takes it."""
    events = run(JOBS, Discipline.REFUSE)
    assert starts(events) == {0: 0.0, 2: 2.0}
    assert [event.job.number for event in events if isinstance(event, JobRefused)] == [1]


def test_a_blocking_head_keeps_all_behind_it_waiting() -> None:
    """The third job would fit, and still starts after the second."""
    assert starts(run(JOBS, Discipline.BLOCK)) == {0: 0.0, 1: 10.0, 2: 20.0}


def test_a_blocking_head_keeps_them_waiting_too_when_something_ends_that_is_not_enough_for_it() -> None:
    """Two of four GPUs are given back after ten seconds: not enough for the third job, and the fourth may not pass it."""
    jobs = [job(0, 2), job(1, 2, service_s=20), job(2, 4, arrival_s=1), job(3, 1, arrival_s=2)]
    assert starts(run(jobs, Discipline.BLOCK)) == {0: 0.0, 1: 0.0, 2: 20.0, 3: 30.0}


def test_skipping_lets_smaller_jobs_pass() -> None:
    """As kube-scheduler does it: the second job then waits for the third one too."""
    assert starts(run(JOBS, Discipline.SKIP)) == {0: 0.0, 2: 2.0, 1: 12.0}


def test_a_job_that_can_never_fit_is_refused_at_the_end() -> None:
    """It waits until nothing is left that could end."""
    events = run([job(0, 5), job(1, 1)], Discipline.SKIP)
    assert isinstance(events[-1], JobRefused)
    assert events[-1].job.number == 0


def test_nobody_is_refused_before_he_came() -> None:
    """Nothing ran when the only job came, which no machine is large enough for."""
    assert [event.time_s for event in run([job(0, 5, arrival_s=7)], Discipline.SKIP)] == [7]


def test_pods_of_a_job_start_together_or_not_at_all() -> None:
    """Two pods of three GPUs do not fit into four, and the first one leaves no trace."""
    cluster = cluster_of("l40s-4")
    assert policy_for_pods("stock-most", [])(cluster, Random(1)).place(job(0, 3, 3)) is None
    assert cluster.nodes[0].free == 0b1111


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["stock-least", "stock-most", "gputopo"])
@settings(max_examples=10)  # the product values two machines anew for each example
@given(sizes=st.lists(st.sampled_from([1, 2, 4, 8]), max_size=40), seed=st.integers(0, 9))
def test_everything_given_is_given_back(policy: str, sizes: list[int], seed: int) -> None:
    """Every job that starts ends, the cluster is empty then, and no GPU was ever given twice (the node would object)."""
    cluster = cluster_of("dgx-1v", "dgx-1v", "l40s-8")
    jobs = [job(number, size, arrival_s=number) for number, size in enumerate(sizes)]
    chosen = policy_for_pods(policy, [])(cluster, Random(seed))
    events = list(simulate(jobs, cluster, chosen, Discipline.SKIP, lambda job, _: 7.0 * job.gpus))
    assert (
        sum(isinstance(event, Started) for event in events)
        == sum(isinstance(event, Finished) for event in events)
        == len(jobs)
    )
    assert cluster.free_gpu_milli == cluster.gpus * 1000


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        (PodSize(1), [0, 1]),
        (PodSize(2), [1]),
        (PodSize(1, cpu_milli=90_000), [1]),
        (PodSize(1, memory_mib=999_999), [1]),
        (PodSize(1, models=("l40s-4",)), [0]),
        (PodSize(1, gpu_milli=400), [0, 1]),
        (PodSize(1, gpu_milli=700), [0, 1]),
        (PodSize(2, gpu_milli=400), [0, 1]),
        (PodSize(5), []),
    ],
)
def test_a_pod_fits_where_its_gpus_cpu_memory_and_model_are_free(pod: PodSize, nodes: list[int]) -> None:
    """On the first node two GPUs are taken and half of the third, with 8 cores and 2 MiB; the second one is empty."""
    cluster = cluster_of("l40s-4", "t4-4")
    cluster.take(Allotment(0, (0, 1), PodSize(2, cpu_milli=8_000, memory_mib=2)))
    cluster.take(Allotment(0, (2,), PodSize(1, gpu_milli=500)))
    assert [node.index for node in cluster.fitting(pod)] == nodes


def test_a_queue_is_planned_as_one_where_that_serves_more() -> None:
    """Of two machines the only one for the second job is the first one's choice, too; planned together both start at once."""
    queue = [job(0, 1), job(1, pod=PodSize(8, models=("dgx-1v",)))]
    found = {}
    for policy in ("gputopo", "gputopo-as-one"):
        cluster = cluster_of("dgx-1v", "dgx-a100")
        chosen = policy_for_pods(policy, [])(cluster, Random(1))
        found[policy] = starts([*simulate(queue, cluster, chosen, Discipline.SKIP, lambda job, _: 10.0)])
    assert found == {"gputopo": {0: 0.0, 1: 10.0}, "gputopo-as-one": {0: 0.0, 1: 0.0}}


def test_a_gang_in_the_queue_starts_whole_before_pods_that_came_later() -> None:
    """Both machines are kept for it; a pod passes it that ends before it starts, as far as pods say how long they run."""
    waiting = [job(0, 8), job(1, 8, 8, arrival_s=1), job(2, 8, arrival_s=2, service_s=5), job(3, 1, arrival_s=11)]
    found = {}
    for policy in ("gputopo", "gputopo-queue", "gputopo-queue-expected"):
        cluster = cluster_of("dgx-1v", "dgx-1v")
        chosen = policy_for_pods(policy, [])(cluster, Random(1))
        found[policy] = starts([*simulate(waiting, cluster, chosen, Discipline.SKIP, lambda job, _: job.service_s)])
    assert found["gputopo"] == {0: 0.0, 2: 2.0, 1: 10.0, 3: 20.0}
    assert found["gputopo-queue"] == {0: 0.0, 1: 10.0, 2: 20.0, 3: 20.0}
    assert found["gputopo-queue-expected"] == {0: 0.0, 2: 2.0, 1: 10.0, 3: 20.0}


@pytest.mark.parametrize("discipline", [Discipline.REFUSE, Discipline.BLOCK])
def test_where_no_job_is_planned_with_others_there_is_no_queue(discipline: Discipline) -> None:
    """Each job is placed as it comes, as the extender does without a queue."""
    assert starts(run(JOBS, discipline, "gputopo-queue")) == starts(run(JOBS, discipline, "gputopo")) != {}
