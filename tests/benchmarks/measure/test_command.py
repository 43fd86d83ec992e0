"""The command lines of measuring: `measure` itself, and `plan` with what it has kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from benchmarks.cli import app
from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import fleet, join
from tests.invoking import Done, call
from topology.annotations.measurements import encode_measurements
from topology.bandwidth.measured import Conditions, Figure, MeasuredMachine, kind_of
from topology.formats.catalog import machine

CONDITIONS = Conditions("n9", "2026-11-23T15:04:05Z", 2**30)


def bench(*arguments: str) -> Done:
    return call(app, *arguments)


def written(folder: Path, name: str, *figures: tuple[tuple[int, ...], float]) -> str:
    kept = tuple(Figure(gpus, (gb_per_s,), CONDITIONS) for gpus, gb_per_s in figures)
    file = folder / "measured.json"
    file.write_text(encode_measurements({kind_of(machine(name)): MeasuredMachine(name, kept)}))
    return str(file)


@pytest.mark.slow
def test_plan_goes_by_what_was_measured(tmp_path: Path) -> None:
    """The bridge turns out slow, so the floor is not reached; and what is reached says that it is measured."""
    file = written(tmp_path, "a100-pcie-8-pairs", ((0, 1), 120.0))
    plain = ("plan", "a100-pcie-8-pairs", "--gpus", "2")
    found = json.loads(bench(*plain, "--measured", file, "-o", "json").stdout)
    floor = bench(*plain, "--min-bandwidth", "200", "--measured", file)

    assert found["bandwidth_gb_per_s"] == {"low": 120.0, "point": 120.0, "high": 120.0, "measured": True}
    assert bench(*plain, "--measured", file).stdout == "GPUs 0 1: nvlink, 120 GB/s measured (120 to 120)\n"
    assert (floor.returncode, bench(*plain, "--min-bandwidth", "200").returncode) == (1, 0)


@pytest.mark.slow
def test_plan_says_what_it_does_not_believe(tmp_path: Path) -> None:
    """On stderr, and plans with the rest; a file for other machines changes nothing."""
    file = written(tmp_path, "a100-pcie-8-pairs", ((0, 1), 120.0), ((0, 2), 5000.0))
    done = bench("plan", "a100-pcie-8-pairs", "--gpus", "2", "--measured", file, "-o", "json")
    other = bench("plan", "dgx-1v", "--gpus", "2", "--measured", file)

    assert "5000 GB/s, and these wires carry at most" in done.stderr
    assert json.loads(done.stdout)["bandwidth_gb_per_s"]["measured"]
    assert other.stdout == bench("plan", "dgx-1v", "--gpus", "2").stdout
    assert f"no figures for this kind of machine, {kind_of(machine('dgx-1v'))}" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("plan", "dgx-1v", "--gpus", "2", "--measured", "absent.json"), "absent.json: No such file or directory"),
        (("plan", "dgx-1v", "--gpus", "2", "--measured", "pyproject.toml"), "pyproject.toml: not JSON"),
        (("measure",), "--image is needed"),
        (("measure", "--image", "x", "--file", "a", "--configmap", "b"), "say one of them"),
        (("measure", "--dry-run", "--nodes", "a=b=c"), "--nodes: 'a=b=c' is neither LABEL nor LABEL=VALUE"),
        (("measure", "--dry-run", "--kubeconfig", "absent"), "cannot read the cluster"),
    ],
)
def test_bad_usage_is_exit_code_2_with_the_reason(arguments: tuple[str, ...], reason: str) -> None:
    """Nothing is printed on stdout."""
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


async def test_a_dry_run_is_one_document(tmp_path: Path) -> None:
    """What would be measured with its prediction, and what is left out."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, fleet({"hgx-h100": 2, "t4-4": 1}))
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ("--kubeconfig", str(tmp_path / "kubeconfig"))
        done = await asyncio.to_thread(bench, "measure", "--dry-run", "--max-jobs", "1", "-o", "json", *here)

    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert [(row["node"], len(row["gpus"])) for row in found["rows"]] == [("hgx-h100-0", size) for size in range(2, 9)]
    assert [each["node"] for each in found["skipped"]] == ["t4-4-0"]
