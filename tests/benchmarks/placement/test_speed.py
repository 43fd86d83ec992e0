"""Bandwidth into run time: by hand, and that it is never better than the best."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.placement.cluster import Allotment
from benchmarks.placement.engine import Finished, Started
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.scenarios.one_server import OneServer, mapa_jobs
from benchmarks.placement.scenarios.queueing import FreeGpus, run_queue, times
from benchmarks.placement.speed import Sensitivity, SpeedModel, traffic_from
from tests.benchmarks.placement.builders import cluster_of, job


def talkative(traffic: float, *gpus: int) -> Job:
    """Return a job of 100 s that sends so many GB per second of computing."""
    return Job(0, 0.0, 100.0, tuple(PodSize(count) for count in gpus), traffic_gb_per_s=traffic)


def test_traffic_explains_the_slow_down_that_it_was_read_from() -> None:
    """Back from traffic to the measured ratio of two placements."""
    traffic = traffic_from(1.25, 36.0, 12.0)
    assert (1 + traffic / 12) / (1 + traffic / 36) == pytest.approx(1.25)


def test_a_quiet_job_runs_alike_everywhere() -> None:
    """Without traffic there is nothing to slow down."""
    speed = SpeedModel(cluster_of("dgx-1v"))
    assert speed.run_time(talkative(0.0, 2), (Allotment(0, (0, 7), PodSize(2)),)) == 100.0


def test_the_best_set_runs_at_full_speed_and_no_other_faster() -> None:
    """Of a cube mesh, any double link is a best pair, and one over PCIe is far from it."""
    speed = SpeedModel(cluster_of("dgx-1v"))
    times = {
        pair: speed.run_time(talkative(5.0, 2), (Allotment(0, pair, PodSize(2)),)) for pair in ((0, 3), (0, 1), (0, 7))
    }
    assert times[0, 3] == pytest.approx(100.0)
    assert 100.0 < times[0, 1] < times[0, 7]


def test_across_nodes_the_network_is_shared_out_by_gpus() -> None:
    """Two halves of two nodes with 12.5 GB/s each: half of that for the job on half the GPUs."""
    speed = SpeedModel(cluster_of("dgx-1v", "dgx-1v"), network_gb_per_s=12.5)
    halves = tuple(Allotment(node, (0, 1, 2, 3), PodSize(4)) for node in (0, 1))
    assert speed.bandwidth(halves) == pytest.approx(6.25)


def test_pods_of_one_job_on_one_node_are_one_ring() -> None:
    """Two pods of one GPU each, on a double link."""
    speed = SpeedModel(cluster_of("dgx-1v"))
    pods = (Allotment(0, (0,), PodSize(1)), Allotment(0, (3,), PodSize(1)))
    assert speed.bandwidth(pods) == speed.bandwidth((Allotment(0, (0, 3), PodSize(2)),))


def test_waiting_for_shape_counts_only_while_enough_gpus_are_free() -> None:
    """Eight GPUs, five taken from 0 to 10, all from 10 to 20: a job of two waits in vain for shape in the first ten seconds."""
    free = FreeGpus(8)
    for time_s, gpus in ((0.0, -5), (10.0, -3), (20.0, 8)):
        free.change(time_s, gpus)
    assert [free.seconds(2, 0.0, end_s) for end_s in (4.0, 10.0, 20.0)] == [4.0, 10.0, 10.0]


def test_completion_by_gpu_counts_a_job_once_for_each_of_its_gpus() -> None:
    """On eight GPUs a job of eight waits an hour for one of one GPU: 1 and 2 hours, on the mean of nine GPUs 17/9."""
    jobs = [job(0, 1, service_s=3600.0), job(1, 8, service_s=3600.0)]
    cluster = cluster_of("hgx-h100")
    speed = SpeedModel(cluster)
    outcome = run_queue(jobs, cluster, policy_for_pods("stock-most", [])(cluster, Random(1)), speed.run_time)
    found = times(outcome)
    assert (found["jct_h_mean"], found["jct_by_gpu_h_mean"]) == pytest.approx((1.5, 17 / 9))
    assert (found["wait_single_h_mean"], found["wait_large_h_mean"], found["jct_by_gpu_h_p95"]) == (0.0, 1.0, 2.0)


def test_mapas_jobs_differ_between_sensitivities_by_their_traffic_only() -> None:
    """Sizes, times and networks are the same draw."""
    none, everything = (mapa_jobs(Random(3), 50, how) for how in (Sensitivity.NONE, Sensitivity.ALL))
    assert [(job.gpus, job.service_s, job.application) for job in none] == [
        (job.gpus, job.service_s, job.application) for job in everything
    ]
    assert {job.traffic_gb_per_s for job in none} == {0.0}
    assert len({job.traffic_gb_per_s for job in everything}) == 1


def test_first_fit_is_its_own_measure() -> None:
    """Every job of MAPA's baseline is as fast as itself."""
    found = {row.metric: row.value for row in OneServer(jobs=20).run("dgx-1v/all", "mapa-baseline", 1)}
    assert (found["speed_up_p0"], found["speed_up_p100"], found["jobs_run"]) == (1.0, 1.0, 20.0)


def test_a_policy_that_never_ends_is_not_measured() -> None:
    """MAPA-preserve lets sensitive pairs wait for ever where there is PCIe only; the jobs before them are no measure."""
    found = {row.metric for row in OneServer(jobs=40).run("l40s-8/all", "mapa-preserve", 1)}
    assert found == {"jobs_run"}


def test_without_traffic_nobody_is_faster() -> None:
    """At sensitivity none the choice of GPUs changes no run time, so a policy that waits for no better set changes nothing."""
    found = {row.metric: row.value for row in OneServer(jobs=40).run("dgx-1v/none", "gputopo", 1)}
    assert (found["speed_up_p0"], found["speed_up_p100"]) == (1.0, 1.0)


def test_events_are_what_the_metrics_expect() -> None:
    """A finished job names the start it belongs to."""
    started = Started(1.0, talkative(0.0, 1), ())
    assert Finished(2.0, started).started is started
