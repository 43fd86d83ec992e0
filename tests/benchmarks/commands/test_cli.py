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
    return json.loads(bench(*arguments, "-o", "json").stdout)


@pytest.mark.slow
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
    ("shared", "free", "gpus"),
    [("0=60,3=20", None, [0]), ("0=75,3=20", None, [3]), ("0=75", "4,5", [4]), (None, "6", [6])],
)
def test_a_share_goes_to_the_fullest_gpu_with_room(shared: str | None, free: str | None, gpus: list[int]) -> None:
    """Only where no shared GPU has room a free one is begun."""
    more = (*(("--shared", shared) if shared else ()), *(("--free", free) if free else ()))
    found = answer("plan", "hgx-h100", "--gpu-memory-gib", "10", *more)
    assert found == {"fits": True, "gpus": gpus, "memory_gib": 10}


def test_a_share_that_finds_no_room_is_exit_code_1() -> None:
    """The reason is that of the extender; what the driver keeps is not given away."""
    asks = ("plan", "hgx-h100", "--gpu-memory-gib", "10", "--shared", "0=69", "--free", "")
    assert bench(*asks).returncode == 0
    done = bench(*asks, "--reserve-gib", "1", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)) == (
        1, {"fits": False, "reason": "no GPU has 10 GiB left: the most that one has is 9"}
    )  # fmt: skip


def test_whole_gpus_pass_over_a_shared_one() -> None:
    """A GPU is whole or shared, never both."""
    found = answer("plan", "v100-sxm2-4", "--gpus", "2", "--shared", "0=1,1=1")
    assert sorted(found["gpus"]) == [2, 3]


def test_memory_is_known_by_the_model_where_the_source_tells_only_that(tmp_path: Path) -> None:
    """A matrix has no memory in it."""
    matrix = tmp_path / "matrix.txt"
    matrix.write_text(print_matrix(machine("hgx-h100")))
    asks = ("plan", str(matrix), "--gpu-memory-gib", "70")
    assert "name its model with --gpu-model" in bench(*asks).stderr
    assert answer(*asks, "--gpu-model", "NVIDIA H100 80GB HBM3")["fits"]


@pytest.mark.parametrize(
    "asks",
    [("--required-affinity", "nvlink"), ("--min-bandwidth", "200"), ("--free", "0,1")],
)
def test_a_clear_no_is_exit_code_1(asks: tuple[str, ...]) -> None:
    """Nothing is wrong with the question; the reason is in the JSON."""
    done = bench("plan", "l40s-8", "--gpus", "4", *asks, "-o", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout).keys() == {"fits", "reason"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("plan", "l40s-8", "--gpus", "0"), "--gpus"),
        (("plan", "l40s-8", "--gpus", "2", "--free", "0,x"), "'x' is neither a GPU index nor a range such as 4-7"),
        (("plan", "l40s-8", "--gpus", "2", "--free", "0,8"), "the node has no GPU 8"),
        (("plan", "l40s-8", "--gpus", "2", "--free", "3-1"), "'3-1' runs backwards"),
        (("plan", "l40s-8"), "--gpus or for --gpu-memory-gib"),
        (("plan", "l40s-8", "--gpus", "2", "--gpu-memory-gib", "3"), "--gpus or for --gpu-memory-gib"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--shared", "0:60"), "'0:60' is not a GPU index with its GiB"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--shared", "9=1"), "the node has no GPU 9"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--shared", "0=1,0=2"), "GPU 0 is there twice"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--shared", "0=0"), "is free, and not shared"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--shared", "0=900"), "GPU 0 has 44 GiB to share, and not 900"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--shared", "0=1", "--free", "0-3"), "of --shared is not free"),
        (("plan", "l40s-8", "--gpu-memory-gib", "3", "--min-bandwidth", "9"), "say nothing of a share"),
        (("plan", "l40s-8", "--gpus", "2", "--required-affinity", "near"), "near"),
        (("plan", "l40s-8", "--gpus", "2", "--min-bandwidth", "inf"), "'--min-bandwidth': inf is no finite number"),
        (("plan", "l40s-8", "--gpus", "2", "--min-bandwidth", "nan"), "--min-bandwidth"),
        (("plan", "l40s-8", "--gpus", "2", "--min-bandwidth", "-1"), "--min-bandwidth"),
        (("show", "no-such-machine"), "no-such-machine: no such file"),
        (("show", "dgx-a10"), "dgx-a10: no such file, and no machine of the catalogue; did you mean dgx-a100?"),
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


@pytest.mark.slow
def test_a_matrix_whose_gpus_are_not_named_is_planned_with_a_warning(tmp_path: Path) -> None:
    """An H100 NVL has PCIe 5, and a figure for PCIe 3 is a fourth of its bandwidth."""
    file = tmp_path / "matrix.txt"
    file.write_text(print_matrix(machine("h100-nvl-8-pairs")))
    asks = ("plan", str(file), "--gpus", "4")
    assert f"warning: {file} does not say which GPUs these are" in bench(*asks).stderr
    assert bench(*asks, "--gpu-model", "NVIDIA H100 NVL").stderr == ""


def test_a_model_that_nobody_knows_is_refused() -> None:
    """A name that says nothing would plan as no name does, and without a warning."""
    done = bench("plan", "hgx-h100", "--gpus", "2", "--gpu-model", "Banana 9000")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--gpu-model 'Banana 9000': no GPU that we know" in done.stderr


def test_what_a_file_leaves_out_is_said_with_its_line(tmp_path: Path) -> None:
    """Of a matrix and of XML."""
    matrix, xml = tmp_path / "matrix.txt", tmp_path / "topo.xml"
    matrix.write_text("GPU0 GPU1\nGPU0 X NV4 <- bridge\nGPU1 NV4 X\n")
    bare = '<pci busid="0000:01:00.0" class="0x030200"/>'
    xml.write_text(f'$ cat topo.xml\n<system version="1">\n<cpu numaid="0">{bare}</cpu>\n</system>\n')
    assert f"warning: {matrix}:2: '<- bridge' after the cells is left out" in bench("show", str(matrix)).stderr
    assert f"warning: {xml}:3: the file says nothing of NVLinks" in bench("plan", str(xml), "--gpus", "1").stderr


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_files_of_other_systems_are_read(tmp_path: Path, encoding: str) -> None:
    """PowerShell's `>` writes UTF-16, with a mark or without."""
    file = tmp_path / "matrix.txt"
    for name in ("rtx-3090-2", "hgx-h100"):
        text = print_matrix(machine(name))
        file.write_bytes(text.replace("\n", "\r\n").encode(encoding))
        assert load_topology(str(file)).matrix == machine(name).matrix


def test_a_matrix_between_tags_is_no_xml(tmp_path: Path) -> None:
    """Issues quote it so."""
    file = tmp_path / "matrix.txt"
    file.write_text(f"<pre>\n{print_matrix(machine('rtx-3090-2'))}</pre>\n")
    assert load_topology(str(file)).matrix == machine("rtx-3090-2").matrix


def test_a_file_that_is_no_text_is_refused_by_its_encoding(tmp_path: Path) -> None:
    """Half a character of UTF-16 is no UTF-8."""
    file = tmp_path / "matrix.txt"
    file.write_bytes(b"\xff\xfeG\x00P")
    assert "not UTF-16" in bench("show", str(file)).stderr


def test_a_broken_file_is_named_with_line_and_reason(tmp_path: Path) -> None:
    """A matrix whose two halves disagree is refused where it does."""
    broken = tmp_path / "broken.txt"
    broken.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV1\t X \n")
    done = bench("plan", str(broken), "--gpus", "2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{broken}:3:")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "matrix", "annotation"])
def test_what_show_prints_can_be_planned_on(form: str, tmp_path: Path) -> None:
    """Matrix and annotation are sources, too, and lead to the same GPUs."""
    printed = tmp_path / "printed"
    printed.write_text(bench("show", "a100-pcie-8-pairs", "-o", form).stdout)
    asks = ("--gpus", "2", "--free", "1,2,3", "--gpu-model", "NVIDIA A100 80GB PCIe")
    assert answer("plan", str(printed), *asks) == answer("plan", "a100-pcie-8-pairs", *asks)


def test_shows_every_cell() -> None:
    """JSON carries the GPUs, the whole matrix and the NICs."""
    shown, node = answer("show", "dgx-1v"), machine("dgx-1v")
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


@pytest.mark.slow
def test_output_that_cannot_be_written_is_no_answer() -> None:
    """A full disk is exit code 2, so that no script takes it for "does not fit"."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "benchmarks", "plan", "dgx-1v", "--gpus", "2"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "cannot write the output" in done.stderr


@pytest.mark.slow
def test_reads_a_matrix_from_stdin() -> None:
    """`nvidia-smi topo -m | gputopo-bench show -` works, as a program of its own."""
    asks = ("show", "-", "-o", "json", "--gpu-model", "NVIDIA GeForce RTX 3090")
    done = run("benchmarks", *asks, text=print_matrix(machine("rtx-3090-2")))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["matrix"] == [["X", "NV4"], ["NV4", "X"]]


@pytest.mark.slow
def test_a_program_ends_with_the_exit_code_of_its_command() -> None:
    """A clear no is 1 for the shell, too, and nothing beside the reason is said."""
    done = run("benchmarks", "plan", "l40s-8", "--gpus", "9", "-o", "json")
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout).keys() == {"fits", "reason"}


@pytest.mark.slow
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


def test_the_optimum_is_printed_beside_policies_and_the_pooled_system() -> None:
    """The best rule comes first, the machine without walls last."""
    asks = (
        "optimum",
        "rtx-3090-2",
        "--machines",
        "2",
        "--load",
        "0.82",
        "--mix",
        "1=40,2=35",
        "--policies",
        "stock-most",
    )
    rows = answer(*asks, "-o", "json")["rows"]
    assert [row["rule"] for row in rows] == ["optimum", "stock-most", "pooled"]
    assert rows[0]["below_optimum_pct"] < 0.01 and rows[0]["lost_pct"].keys() == {"1", "2"}
    assert bench(*asks).stdout.splitlines()[0].split()[:3] == ["rule", "below", "optimum"]


def test_the_optimum_with_moves_is_about_two_nodes_and_one_restart_cost() -> None:
    """The product stands beside it without moves and with them."""
    asks = "optimum", "rtx-3090-2", "--load", "0.82", "--mix", "1=50,2=50", "--restart-cost", "5"
    rows = json.loads(bench(*asks, "--machines", "2", "-o", "json").stdout)["rows"]
    assert [row["rule"] for row in rows] == ["optimum", "gputopo-told", "gputopo-moves-5m-told", "pooled"]
    assert rows[2]["below_optimum_pct"] < 1 < rows[1]["below_optimum_pct"]
    refused = bench(*asks)
    assert refused.returncode == 2 and "--machines 2" in refused.stderr


@pytest.mark.slow
def test_the_optimum_counts_pods_that_share_a_gpu_beside_others() -> None:
    """By the GiB that they take; all kinds together are all pods."""
    kinds = "--mix", "1=20,2=20", "--shares", "6=35,12=25"
    asks = "optimum", "rtx-3090-2", "--load", "0.82", *kinds, "--policies", "gputopo-told,most-pods"
    rows = answer(*asks, "-o", "json")["rows"]
    assert [row["rule"] for row in rows] == ["optimum", "gputopo-told", "most-pods", "pooled"]
    assert all((row["lost_pct"].keys(), row["share_lost_pct"].keys()) == ({"1", "2"}, {"6", "12"}) for row in rows)
    assert bench(*asks).stdout.splitlines()[0].split()[-6:] == ["lost", "6G", "lost", "12G", "cliques", "2"]


@pytest.mark.parametrize(
    ("asks", "reason"),
    [
        (("--load", "0"), "--load 0.0"),
        (("--load", "nan"), "--load nan"),
        (("--load", "0.8", "--mix", "1=40,2"), "no list of size=share"),
        (("--load", "0.8", "--mix", "1=1,4=1"), "the machine has 2 GPUs"),
        (("--load", "0.8", "--mix", "1=1", "--policies", "nobody"), "no policy is called 'nobody'"),
        (("--load", "0.8", "--mix", "1=1", "--machines", "3"), "--machines"),
        (("--load", "0.8", "--mix", "1=1", "--shares", "6"), "no list of GiB=share"),
        (
            ("--load", "0.8", "--mix", "1=1", "--shares", "7=1"),
            "7 GiB of 24 are all, or no whole number of thousandths",
        ),
        (("--load", "0.8", "--mix", "1=1", "--shares", "24=1"), "24 GiB of 24 are all"),
    ],
)
def test_an_optimum_of_nonsense_is_exit_code_2(asks: tuple[str, ...], reason: str) -> None:
    """With nothing on stdout."""
    done = bench("optimum", "rtx-3090-2", *asks)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
