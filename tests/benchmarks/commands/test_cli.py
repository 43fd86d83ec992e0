"""`gputopo-bench show`, `plan` and `list`: stable JSON, honest exit codes, errors that name file, line and reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cli import app
from benchmarks.sources import load_topology
from tests.invoking import Done, call, run
from topology.annotations.codec import decode_topology, encode_topology
from topology.formats.catalog import MACHINES, machine
from topology.formats.matrix import print_matrix
from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest


def bench(*arguments: str) -> Done:
    return call(app, *arguments)


def answer(*arguments: str) -> Any:
    return json.loads(bench(*arguments).stdout)


def test_plans_on_a_machine_of_the_catalogue() -> None:
    """The answer names indexes in ring order, the affinity and the interval."""
    found = answer("plan", "dgx-1v", "--gpus", "4", "--free", "2-7")
    assert (found["fits"], sorted(found["gpus"]), found["affinity"]) == (True, [4, 5, 6, 7], "nvlink")
    assert (
        found["bandwidth_gb_per_s"]["low"] < found["bandwidth_gb_per_s"]["point"] < found["bandwidth_gb_per_s"]["high"]
    )


def test_one_gpu_has_no_bandwidth_and_no_affinity() -> None:
    """Both are null, since there is no other GPU to reach; a floor does not speak of it."""
    found = answer("plan", "l40s-8", "--gpus", "1", "--min-bandwidth", "900")
    assert found == {"fits": True, "gpus": [0], "affinity": None, "bandwidth_gb_per_s": None}


@pytest.mark.parametrize(
    "asks",
    [("--required-affinity", "nvlink"), ("--min-bandwidth", "200"), ("--free", "0,1")],
)
def test_a_clear_no_is_exit_code_1(asks: tuple[str, ...]) -> None:
    """Nothing is wrong with the question; the reason is in the JSON."""
    done = bench("plan", "l40s-8", "--gpus", "4", *asks)
    assert done.returncode == 1
    assert json.loads(done.stdout).keys() == {"fits", "reason"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("plan", "l40s-8", "--gpus", "0"), "--gpus"),
        (("plan", "l40s-8", "--gpus", "2", "--free", "0,x"), "'x' is no GPU index"),
        (("plan", "l40s-8", "--gpus", "2", "--free", "0,8"), "the node has no GPU 8"),
        (("plan", "l40s-8", "--gpus", "2", "--free", "3-1"), "'3-1' runs backwards"),
        (("plan", "l40s-8", "--gpus", "2", "--required-affinity", "near"), "near"),
        (("plan", "l40s-8", "--gpus", "2", "--min-bandwidth", "inf"), "'--min-bandwidth': inf is no finite number"),
        (("plan", "l40s-8", "--gpus", "2", "--min-bandwidth", "nan"), "--min-bandwidth"),
        (("plan", "l40s-8", "--gpus", "2", "--min-bandwidth", "-1"), "--min-bandwidth"),
        (("show", "no-such-machine"), "no-such-machine: no such file"),
    ],
)
def test_bad_usage_is_exit_code_2_with_the_reason(arguments: tuple[str, ...], reason: str) -> None:
    """Nothing is printed on stdout, so that a script cannot mistake it for an answer."""
    done = bench(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_a_partial_matrix_is_shown_with_a_warning(tmp_path: Path) -> None:
    """Cells that nobody measured are `?` on stdout, and standard error says how many there are."""
    whole = print_matrix(machine("hgx-h100"), legend=False).splitlines(keepends=True)
    file = tmp_path / "half.txt"
    file.write_text("".join(whole[:5]))
    done = bench("show", str(file))
    assert (done.returncode, "?" in done.stdout) == (0, True)
    assert f"warning: {file} is partial: 6 of 28 pairs of GPUs" in done.stderr


def test_a_broken_file_is_named_with_line_and_reason(tmp_path: Path) -> None:
    """A matrix whose two halves disagree is refused where it does."""
    broken = tmp_path / "broken.txt"
    broken.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV1\t X \n")
    done = bench("plan", str(broken), "--gpus", "2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{broken}:3:")


@pytest.mark.parametrize("form", ["matrix", "annotation"])
def test_what_show_prints_can_be_planned_on(form: str, tmp_path: Path) -> None:
    """Matrix and annotation are sources, too, and lead to the same GPUs."""
    printed = tmp_path / "printed"
    printed.write_text(bench("show", "a100-pcie-8-pairs", "-o", form).stdout)
    asks = ("--gpus", "2", "--free", "1,2,3", "--gpu-model", "NVIDIA A100 80GB PCIe")
    assert answer("plan", str(printed), *asks) == answer("plan", "a100-pcie-8-pairs", *asks)


def test_shows_every_cell() -> None:
    """JSON carries the GPUs, the whole matrix and the NICs."""
    shown, node = answer("show", "dgx-1v", "-o", "json"), machine("dgx-1v")
    assert [tuple(row) for row in shown["matrix"]] == list(node.matrix)
    assert [gpu["index"] for gpu in shown["gpus"]] == list(range(8))
    assert {nic["name"] for nic in shown["nics"]} == {nic.name for nic in node.nics}


def test_shows_the_value_for_a_simulated_node() -> None:
    """`-o annotation` is what an agent would write, ready for `kubectl annotate`."""
    printed = bench("show", "hgx-h100", "-o", "annotation").stdout
    assert decode_topology(printed.strip()) == decode_topology(encode_topology(machine("hgx-h100")))


def test_shows_a_picture() -> None:
    """`-o svg` is one SVG document."""
    assert bench("show", "dgx-2", "-o", "svg").stdout.startswith("<svg")


def test_output_that_cannot_be_written_is_no_answer() -> None:
    """A full disk is exit code 2, so that no script takes it for "does not fit"."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "benchmarks", "plan", "dgx-1v", "--gpus", "2"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "cannot write the output" in done.stderr


def test_reads_a_matrix_from_stdin() -> None:
    """`nvidia-smi topo -m | gputopo-bench show -` works, as a program of its own."""
    done = run("benchmarks", "show", "-", "-o", "json", text=print_matrix(machine("rtx-3090-2")))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["matrix"] == [["X", "NV4"], ["NV4", "X"]]


def test_a_program_ends_with_the_exit_code_of_its_command() -> None:
    """A clear no is 1 for the shell, too, and nothing beside the reason is said."""
    done = run("benchmarks", "plan", "l40s-8", "--gpus", "9")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout).keys() == {"fits", "reason"}


def test_every_real_matrix_can_be_shown_and_planned_on(shared_dir: Path) -> None:
    """Machines as people posted them: each gives a plan for all its GPUs."""
    nodes = {source.name: load_topology(str(source)) for source in (shared_dir / "topologies").glob("*.txt")}
    placed = {
        name: plan(TopologyClass(node), (1 << len(node)) - 1, GpuRequest(len(node))) for name, node in nodes.items()
    }
    assert len(placed) >= 40
    assert all(isinstance(found, Placement) and len(found.gpus) == len(nodes[name]) for name, found in placed.items())


def test_lists_the_catalogue() -> None:
    """Every machine by name."""
    assert [row["machine"] for row in answer("list", "-o", "json")["rows"]] == list(MACHINES)
