"""The Job that measures a machine, its script run by a real shell, and what is made of its log."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from benchmarks.measure.job import Failed, JobOptions, figures_in, job, script
from benchmarks.measure.survey import Target, survey
from tests.benchmarks.measure.nccl import write_all_reduce_perf
from tests.extender.builders import PAIRS, claim, cluster, gpus, node, running
from topology.annotations.records import PlacementRecord
from topology.bandwidth.measured import Conditions, kind_of
from topology.formats.catalog import machine

AT = "2026-11-23T15:04:05Z"
WANTED = JobOptions("example.com/nccl-tests:1", runs=2)


def target(name: str = PAIRS, max_sets: int = 4) -> Target:
    (found,) = survey(cluster(node("n1", name)).views.values(), known=(), max_jobs=1, max_sets=max_sets).targets
    return found


def given(on: Target) -> PlacementRecord:
    return PlacementRecord({"nccl-tests": tuple(gpu.uuid for gpu in on.topology.gpus)})


def log_of(on: Target, folder: Path, rates: dict[tuple[int, ...], str]) -> str:
    """Return what the Job's container prints, where that program is in its image."""
    write_all_reduce_perf(folder / "all_reduce_perf", on.topology, rates)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = job(on, WANTED, "go")["spec"]["template"]["spec"]["containers"][0]["command"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=path).stdout


def test_figures_of_all_sets_are_read_from_the_log(tmp_path: Path) -> None:
    """Each with its runs and conditions; the sets are those that the machine tells apart, the best of each size first."""
    on = target(max_sets=9)
    assert on.sets[:3] == ((0, 1), (0, 1, 2), (0, 1, 2, 3))
    found, failed = figures_in(log_of(on, tmp_path, {(0, 1): "201.5", (0, 1, 2): "18.25"}), on, given(on), AT)

    rates = {figure.gpus: figure.runs_gb_per_s for figure in found}
    assert failed == ()
    assert rates == dict.fromkeys(on.sets, (9.87, 9.87)) | {(0, 1): (201.5, 201.5), (0, 1, 2): (18.25, 18.25)}
    assert {figure.conditions for figure in found} == {Conditions("n1", AT, 2**30, None, "2.26.2")}


def test_a_set_that_fails_does_not_keep_the_others_from_being_measured(tmp_path: Path) -> None:
    """It is named, with what nccl-tests said last."""
    on = target()
    found, failed = figures_in(log_of(on, tmp_path, {(0, 1, 2): "broken"}), on, given(on), AT)

    words = "host: Test NCCL failure common.cu:999 'unhandled cuda error'"
    assert failed == (Failed((0, 1, 2), f"nccl-tests failed with exit code 3: {words}"),)
    assert [figure.gpus for figure in found] == [gpus for gpus in on.sets if gpus != (0, 1, 2)]


def test_a_log_that_ends_early_leaves_out_what_it_does_not_have(tmp_path: Path) -> None:
    """The last set is half done, and the others were not reached."""
    on = target()
    whole = log_of(on, tmp_path, {})
    half = whole[: whole.index("# gputopo: GPUs 0,1,2,3\n") - 60]
    found, failed = figures_in(half, on, given(on), AT)

    assert [figure.gpus for figure in found] == [(0, 1)]
    assert [each.reason.split(": ")[-1] for each in failed] == [
        "the program did not come to its end",
        "it was not reached in time",
        "it was not reached in time",
    ]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("[0x", "[0xf", "other GPUs took part than were asked for"),
        ("  1073741824 ", "  1048576 ", "messages of 1048576 bytes, and 1073741824 were asked for"),
        (": 0 OK", ": 7 FAILED", "7 values came out wrong"),
        ("9.87", "0.00", "no bandwidth was seen"),
    ],
)
def test_what_cannot_be_the_figure_of_a_set_is_refused(tmp_path: Path, before: str, after: str, reason: str) -> None:
    """Other GPUs, another size, wrong sums, and nothing at all."""
    on = target(max_sets=1)
    found, failed = figures_in(log_of(on, tmp_path, {}).replace(before, after), on, given(on), AT)

    assert found == ()
    assert [each.reason.endswith(reason) for each in failed] == [True], failed


def test_a_pod_that_was_given_other_gpus_measures_nothing(tmp_path: Path) -> None:
    """Its record counts, and not what the log says."""
    on = target(max_sets=1)
    record = PlacementRecord({"nccl-tests": given(on).containers["nccl-tests"][:7]})

    found, failed = figures_in(log_of(on, tmp_path, {}), on, record, AT)
    assert (found, failed) == ((), (Failed((0, 1), "the pod was not given the GPUs of the machine"),))


def test_the_job_takes_its_whole_node_and_goes_by_itself() -> None:
    """All GPUs, one node, no retry, an end in time; and the cluster removes it if nobody else does."""
    made = job(target(), replace(WANTED, priority_class="low"), "go")
    spec = made["spec"]["template"]["spec"]

    assert spec["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    assert (spec["schedulerName"], spec["restartPolicy"], spec["priorityClassName"]) == ("gputopo", "Never", "low")
    kept = {key: made["spec"][key] for key in ("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")}
    assert kept == {"backoffLimit": 0, "activeDeadlineSeconds": 2100, "ttlSecondsAfterFinished": 600}


def test_one_idle_node_of_each_kind_is_chosen() -> None:
    """Where pods run, or GPUs are sick, nothing is measured; and the reason is told."""
    (uuid,), sick = gpus("n1", 3, machine_name=PAIRS), gpus("n5", 0, machine_name="l40s-8")
    state = cluster(
        node("n1", PAIRS, claims=(claim(uuid, "p1"),), held={uuid: "p1"}),
        running("p1", "n1", uuid),
        node("n2", PAIRS),
        node("n3", PAIRS),
        node("n4", "dgx-1v", ready=False),
        node("n5", "l40s-8", sick=sick),
        node("n6", "hgx-h100"),
        node("n7", "dgx-a100"),
        node("n8", "hgx-b200"),
    )
    found = survey(state.views.values(), known={kind_of(machine("dgx-a100"))}, max_jobs=2, max_sets=1)

    assert [each.node for each in found.targets] == ["n2", "n6"]
    assert {each.node: each.reason for each in found.skipped} == {
        "n4": "no such node is idle: node is not ready",
        "n5": "no such node is idle: 7 of 8 GPUs are free",
        "n7": "it is measured already",
        "n8": "2 machines are enough for one go",
    }


def test_uuids_that_are_no_uuids_never_reach_a_shell() -> None:
    """A node's annotation is written by whoever has its agent's rights."""
    forged = node("n1", "rtx-3090-2")
    uuid = machine("rtx-3090-2", host="n1").gpus[0].uuid
    written = {key: text.replace(uuid, "$(reboot)") for key, text in (forged.metadata.annotations or {}).items()}
    state = cluster(structs.replace(forged, metadata=structs.replace(forged.metadata, annotations=written)))
    found = survey(state.views.values(), known=(), max_jobs=1, max_sets=1)

    assert found.targets == ()
    assert [each.reason for each in found.skipped] == [
        "no such node is idle: its GPUs have UUIDs that are none of NVIDIA's"
    ]
    assert "$(" not in script(target(), WANTED).replace("$1", "").replace("$?", "")
