"""Every scenario runs, says the same again for the same seed, and shows what it is there to show."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from random import Random

import pytest

from benchmarks.placement.baselines.pair_scores import socket_groups
from benchmarks.placement.registry import scenario_of
from benchmarks.placement.rows import ResultRow
from benchmarks.placement.scenarios.inflation import XS, Inflation
from benchmarks.placement.scenarios.kalos import Kalos
from benchmarks.placement.scenarios.link_graph import LinkGraph
from benchmarks.placement.scenarios.mapa_servers import SERVERS
from benchmarks.placement.scenarios.mixed_fleet import MixedFleet
from benchmarks.placement.scenarios.philly import Philly, pods_of
from benchmarks.placement.scenarios.pollux import Pollux
from benchmarks.placement.speed import Sensitivity
from benchmarks.placement.traces.files import BadTrace, workload_file
from benchmarks.placement.traces.openb import OpenbTrace
from benchmarks.placement.traces.philly import read_philly


def values(rows: Sequence[ResultRow], metric: str) -> float:
    """Return the value of one metric."""
    (found,) = (row.value for row in rows if row.metric == metric)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["stock-least", "gputopo"])
def test_the_same_seed_gives_the_same_rows(policy: str) -> None:
    """Bit for bit, dice and learnt values included."""
    scenario = LinkGraph(arrivals=300)
    assert scenario.run("dgx-1v/load-1.01", policy, 7) == scenario.run("dgx-1v/load-1.01", policy, 7)


@pytest.mark.slow
def test_links_are_worth_looking_at() -> None:
    """On cube meshes the product puts far more 4-GPU jobs on cliques than its peers do, and loses no more than by chance."""
    scenario = LinkGraph(arrivals=1500)
    ours, *peers = (
        scenario.run("dgx-1v/load-0.82", policy, 42) for policy in ("gputopo", "stock-least", "stock-most", "hived")
    )
    for theirs in peers:
        assert values(ours, "clique_ratio_4") > values(theirs, "clique_ratio_4") + 0.1
        lost = values(theirs, "lost_4")
        assert values(ours, "lost_4") < lost + 2 * sqrt(lost)


@pytest.mark.slow
def test_where_links_are_all_alike_nobody_is_hurt() -> None:
    """On NVSwitch machines every set has all the bandwidth that there is."""
    scenario = LinkGraph(arrivals=400)
    for policy in ("stock-most", "gputopo"):
        assert values(scenario.run("hgx-h100/load-0.82", policy, 42), "bandwidth_ratio_4") == pytest.approx(1.0)


def test_mapas_inventions_are_what_its_source_says() -> None:
    """31 links on the torus, four for each GPU but where the source leaves one out; a ring of doubles along the rows."""
    torus = SERVERS["torus-2d"]()
    linked = [(i, j) for (i, j), link in torus.pairs.items() if link.nvlinks]
    assert len(linked) == 31
    assert [torus.nvlinks(*pair) for pair in ((0, 1), (0, 3), (0, 12), (0, 5))] == [2, 1, 2, 0]


def test_mapas_inventions_have_the_sockets_that_mapa_sees() -> None:
    """Four GPUs each: else rules that go by sockets would know less of them than MAPA's own."""
    assert socket_groups(SERVERS["cube-mesh-16"]()) == [tuple(range(begin, begin + 4)) for begin in (0, 4, 8, 12)]


@pytest.mark.slow
def test_a_mixed_fleet_ends_with_all_jobs_done() -> None:
    """Nothing is refused, and no job runs faster than its best."""
    rows = MixedFleet(jobs=200).run("load-0.8/measured", "gputopo", 42)
    assert values(rows, "refused") == 0
    assert values(rows, "run_slow_down_mean") >= 1


def test_on_a_small_cluster_no_point_is_missing(tmp_path: Path) -> None:
    """Pods of four on ten GPUs step over most points; between two steps there is what stood before."""
    (tmp_path / "node_list.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1,8,A\nb,64000,1,2,A\n")
    (tmp_path / "pod_list_four.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n1000,0,4,1000\n")
    found = Inflation(OpenbTrace(tmp_path)).run("four", "best-fit", 42)
    allocated = {row.x: row.value for row in found if row.metric == "allocation_pct"}
    assert tuple(allocated) == XS
    assert [allocated[x] for x in (10, 40, 75, 80, 130)] == [0, 40, 40, 80, 80]


def test_pods_that_no_node_would_take_are_counted(tmp_path: Path) -> None:
    """Nine GPUs on nodes of eight, and a model that is not there; where all pods could go somewhere nothing is said."""
    (tmp_path / "node_list.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1,8,A\n")
    for workload, asked in {"nine": "9,1000,", "b": "1,1000,B", "fits": "8,1000,A"}.items():
        (tmp_path / f"pod_list_{workload}.csv").write_text(
            f"cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n0,0,{asked}\n"
        )
    scenario = Inflation(OpenbTrace(tmp_path))
    assert values(scenario.run("nine", "best-fit", 42), "fits_nowhere") == 2
    assert values(scenario.run("b", "best-fit", 42), "fits_nowhere") == 10
    assert "fits_nowhere" not in {row.metric for row in scenario.run("fits", "best-fit", 42)}


def test_large_jobs_become_gangs() -> None:
    """Philly has jobs of 12 and 20 GPUs."""
    assert [pod.gpus for pod in pods_of(20)] == [8, 8, 4]
    assert [pod.gpus for pod in pods_of(4)] == [4]


PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-0{1 + number // 24} {number % 24:02}:00:00,{3600 * (1 + number % 5)},{1 << number % 5},0,ee9e8c\n"
    for number in range(96)
)
GAVEL = (
    "job_type,num_gpus,gpu,steps_per_s_consolidated,steps_per_s_unconsolidated\n"
    "LM,2,v100,4,1\nLM,4,v100,6,1\nLM,8,v100,9,1\nCNN,2,v100,1,1\nCNN,2,k80,1,0.1\n"
)


def philly_in(folder: Path) -> Philly:
    """Write a short trace and return its scenario."""
    (folder / "philly_jobs_x.csv.gz").write_bytes(gzip.compress(PHILLY.encode()))
    (folder / "gavel_throughputs.csv").write_text(GAVEL)
    return Philly(folder, folder / "gavel_throughputs.csv")


def test_a_seed_of_philly_leaves_out_some_jobs_whatever_they_send(tmp_path: Path) -> None:
    """So that policies, and sensitivities, meet the same jobs, and another seed is another draw."""
    scenario = philly_in(tmp_path)

    def numbers(seed: int, sensitivity: Sensitivity) -> list[int]:
        return [job.number for job in scenario.jobs("ee9e8c", sensitivity, Random(seed))]

    seeds = range(20)
    assert all(numbers(seed, Sensitivity.NONE) == numbers(seed, Sensitivity.ALL) for seed in seeds)
    kept = [len(numbers(seed, Sensitivity.NONE)) for seed in seeds]
    assert 0.96 < sum(kept) / (20 * 96) < 1
    assert len({tuple(numbers(seed, Sensitivity.NONE)) for seed in seeds}) > 10


def test_owners_on_philly_may_say_that_their_jobs_do_not_communicate(tmp_path: Path) -> None:
    """Links cost nothing in either case; only where they say so MAPA-preserve seeks the best ones for nobody."""
    scenario = philly_in(tmp_path)
    assert {"ee9e8c/load-1.0/none", "ee9e8c/load-1.0/none-said"} <= set(scenario.workloads)
    silent, said = (scenario.run(f"ee9e8c/load-1.0/{how}", "mapa-preserve", 42) for how in ("none", "none-said"))
    assert values(silent, "run_slow_down_mean") == values(said, "run_slow_down_mean") == 1
    assert values(silent, "bandwidth_ratio_mean") > values(said, "bandwidth_ratio_mean")


@pytest.mark.slow
def test_philly_replays_a_folder_of_its_form(tmp_path: Path) -> None:
    """Sixteen GPUs are a gang, all jobs end, and packing is measured in bandwidth."""
    rows = philly_in(tmp_path).run("ee9e8c/load-0.8/measured", "gputopo", 42)
    assert values(rows, "refused") == 0
    assert 0 < values(rows, "bandwidth_ratio_mean") <= 1


def test_a_trace_that_ends_before_its_weeks_counts_whole(tmp_path: Path) -> None:
    """Four days of somebody's own cluster, whose name is not among Philly's."""
    scenario = philly_in(tmp_path)
    (tmp_path / "philly_jobs_x.csv.gz").write_bytes(gzip.compress(PHILLY.replace("ee9e8c", "mine").encode()))
    assert {workload.partition("/")[0] for workload in scenario.workloads} == {"all"}
    assert values(scenario.run("all/load-0.8/measured", "gputopo", 42), "refused") == 0


@pytest.mark.parametrize(
    ("file", "scenario"),
    [
        ("philly_jobs_mine.csv", "philly"),
        ("kalos.csv.gz", "kalos"),
        ("pollux_workload_7.csv", "pollux"),
        ("my_pod_list_a.csv", "inflation"),
    ],
)
def test_a_trace_alone_says_which_experiment_it_is_for(tmp_path: Path, file: str, scenario: str) -> None:
    """By the names of its files."""
    (tmp_path / file).touch()
    assert scenario_of(tmp_path) == scenario


def test_who_knows_racks_keeps_gangs_under_one_leaf(tmp_path: Path) -> None:
    """Ten gangs of eight hosts, one at a time: HiveD and the product find them one leaf each; going by names does not."""
    lines = "".join(f"{100 * number},50,8,64\n" for number in range(10))
    (tmp_path / "kalos_x.csv").write_text("submit_time_s,duration_s,node_num,gpu_num\n" + lines)
    scenario = Kalos(tmp_path)
    for policy in ("hived", "gputopo"):
        assert values(scenario.run("hosts-64", policy, 42), "domain_fit_ratio") == 1.0
    assert values(scenario.run("hosts-64", "best-fit", 42), "domain_fit_ratio") < 0.5


def test_on_trays_of_four_a_gang_has_two_pods_for_each_host(tmp_path: Path) -> None:
    """Eight hosts become sixteen trays of one rack; a host with two GPUs stays one pod, and no gang."""
    (tmp_path / "kalos_x.csv").write_text("submit_time_s,duration_s,node_num,gpu_num\n0,9,8,64\n1,9,1,8\n2,9,1,2\n")
    rows = Kalos(tmp_path).run("nvl72-8", "gputopo", 42)
    assert (values(rows, "gangs"), values(rows, "extra_leaves_mean")) == (2, 0)


def test_pollux_takes_run_times_from_measurements(tmp_path: Path) -> None:
    """Two replicas on two nodes were measured at twice the step time; spreading then costs exactly that."""
    (tmp_path / "pollux_workload_1.csv").write_text("name,time,application,num_replicas,batch_size\na,0,bert,2,64\n")
    table = tmp_path / "placements.csv"
    table.write_text("application,placement,local_bsz,step_time,sync_time\nbert,2,32,1.0,0\nbert,11,32,2.0,0\n")
    scenario = Pollux(tmp_path, table)
    assert values(scenario.run("1", "stock-most", 42), "run_slow_down_mean") == 1.0
    assert values(scenario.run("1", "stock-least", 42), "run_slow_down_mean") == 2.0


@pytest.mark.parametrize("placement", ["1x", "", "²"])
def test_a_placement_that_counts_no_replicas_is_refused(tmp_path: Path, placement: str) -> None:
    """It says how many are on each node, by a digit each."""
    (tmp_path / "pollux_workload_1.csv").write_text("time,application,num_replicas,batch_size\n0,bert,2,64\n")
    table = tmp_path / "placements.csv"
    table.write_text(f"application,placement,local_bsz,step_time\nbert,2,32,1.0\nbert,{placement},32,2.0\n")
    with pytest.raises(BadTrace, match=r"placements\.csv, line 3: placement .* is no list of digits"):
        Pollux(tmp_path, table).run("1", "stock-most", 42)


def test_a_folder_of_another_form_is_refused(tmp_path: Path) -> None:
    """Each scenario says which file it misses."""
    (tmp_path / "gavel.csv").write_text(GAVEL)
    with pytest.raises(BadTrace, match="philly_jobs"):
        Philly(tmp_path, tmp_path / "gavel.csv").run("ee9e8c/load-0.8/none", "random", 1)
    with pytest.raises(BadTrace, match="kalos"):
        Kalos(tmp_path).run("hosts-64", "hived", 1)
    with pytest.raises(BadTrace, match="pollux_workload"):
        _ = Pollux(tmp_path, tmp_path).workloads


def test_a_trace_without_jobs_is_refused(tmp_path: Path) -> None:
    """A table with a head and no rows, or with one job, is no experiment."""
    scenario = philly_in(tmp_path)
    (tmp_path / "philly_jobs_x.csv.gz").write_bytes(gzip.compress("\n".join(PHILLY.splitlines()[:2]).encode()))
    with pytest.raises(BadTrace, match="too few jobs of 'all'"):
        scenario.run("all/load-0.8/none", "random", 1)
    (tmp_path / "philly_jobs_x.csv.gz").write_bytes(gzip.compress(PHILLY.splitlines()[0].encode()))
    with pytest.raises(BadTrace, match=r"philly_jobs_x\.csv\.gz has no job"):
        read_philly(tmp_path)
    (tmp_path / "kalos.csv").write_text("submit_time_s,duration_s,node_num,gpu_num\n")
    with pytest.raises(BadTrace, match=r"kalos\.csv has no gang"):
        Kalos(tmp_path).run("hosts-64", "hived", 1)
    (tmp_path / "pollux_workload_1.csv").write_text("time,application,num_replicas,batch_size\n")
    with pytest.raises(BadTrace, match=r"pollux_workload_1\.csv has no job"):
        Pollux(tmp_path, tmp_path).run("1", "hived", 1)


@pytest.mark.parametrize("name", ["gavel_throughputs.csv", "gavel_throughputs.csv.gz"])
def test_measurements_beside_the_trace_may_be_gzipped(tmp_path: Path, name: str) -> None:
    """Like the trace itself."""
    (tmp_path / name).touch()
    assert workload_file("gavel_throughputs.csv", tmp_path) == tmp_path / name
