"""`gputopo-bench bandwidth`: every form of row, stable JSON, errors with line, and the goals on rows that were never fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy.bandwidth import Comparison, compare, rank_correlation, summarise
from benchmarks.accuracy.measurements import Measurement, Role, Transport, UnreadableMeasurements, read_measurements
from benchmarks.cli import app
from tests.invoking import Done, call
from topology.bandwidth.collectives import Collective
from topology.bandwidth.predict import Bandwidth

HEAD = "id,topology,gpu_model,gpu_set,transport,collective,message_bytes,bus_bandwidth_gb_per_s,note\n"
H200 = "hgx-h200,NVIDIA H200"


def measurement(**more: object) -> Measurement:
    fields: dict[str, object] = {
        "id": "r1", "topology": "hgx-h200", "gpu_model": "NVIDIA H200", "gpus": tuple(range(8)),
        "transport": Transport.DEFAULT, "collective": Collective.ALL_REDUCE, "message_bytes": 2**30,
        "bus_bandwidth_gb_per_s": 463.6, "note": "", "source": "", "line": 2,
    }  # fmt: skip
    return Measurement(**fields | more)  # type: ignore[arg-type]


def predicted(**more: object) -> Bandwidth:
    return compare([measurement(**more)], [], Path("measured.csv"))[0].predicted


def matrix(links: int) -> str:
    return f"\tGPU0\tGPU1\nGPU0\t X \tNV{links}\nGPU1\tNV{links}\t X \n"


def bench(*arguments: str) -> Done:
    return call(app, "bandwidth", *arguments)


def test_prints_rows_and_summary(tmp_path: Path) -> None:
    """The keys that people script; the table may name machines of the catalogue, and files beside it."""
    table = tmp_path / "measured.csv"
    table.write_text(
        HEAD
        + f'a,{H200},"0,1,2,3",default,all_reduce,8589934592,363.3,\nb,pair,NVIDIA A40,"0,1",default,all_reduce,,47,\n'
    )
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines" / "pair.topo.txt").write_text(matrix(4))
    done = bench("--measured", str(table), "-o", "json")
    answer = json.loads(done.stdout)
    assert [row["id"] for row in answer["rows"]] == ["a", "b"]
    assert all(row.keys() >= {"measured", "low", "point", "high", "role"} for row in answer["rows"])
    assert answer["summary"]["check"]["all_reduce"]["rows"] == 2 and answer["summary"]["fit"]["rows"] == 0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('a,no-such-box,NVIDIA A40,"0,1",default,all_reduce,,1,', ":2: topology 'no-such-box': no such file"),
        (f'a,{H200},"0,8",default,all_reduce,,1,', ":2: gpu_set: hgx-h200 has no GPU 8"),
        (f'a,{H200},"0,1",default,all_reduce,,-1,', ":2: bus_bandwidth_gb_per_s '-1' is no bandwidth"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    """Exit code 2, and nothing on stdout."""
    table = tmp_path / "measured.csv"
    table.write_text(HEAD + row + "\n")
    done = bench("--measured", str(table))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{table}{reason}" in done.stderr


def test_folders_may_follow_one_option(tmp_path: Path) -> None:
    """`--topologies A B` looks in both, in that order."""
    for name, links in (("one", 4), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(matrix(links))
    table = tmp_path / "measured.csv"
    rows = (f'{name},{name},NVIDIA A40,"0,1",default,all_reduce,,40,\n' for name in ("one", "two"))
    table.write_text(HEAD + "".join(rows))
    done = bench("--measured", str(table), "--topologies", str(tmp_path / "one"), str(tmp_path / "two"), "-o", "json")
    one, two = json.loads(done.stdout)["rows"]
    assert one["point"] == pytest.approx(2 * two["point"], rel=0.01)


def test_forced_settings_change_the_machine() -> None:
    """Without peer access NVLinks are of no use; a ring that is forced is not reduced in the switch, and NVLS is no ring."""
    usual, ring, reduced = predicted(), predicted(transport=Transport.RING), predicted(transport=Transport.NVLS)
    assert predicted(transport=Transport.P2P_OFF).point * 10 < ring.point < usual.point
    assert usual == Bandwidth(ring.low, reduced.point, reduced.high)
    assert reduced.low > ring.high


def test_peer_access_that_is_forced_reaches_as_far_as_was_said() -> None:
    """Below a switch with `shm`, across sockets with the others."""
    geforce = {"topology": "rtx-4090-8", "gpu_model": "NVIDIA GeForce RTX 4090"}
    near = {**geforce, "gpus": (0, 1, 2, 3)}
    assert predicted(**near, transport=Transport.SHM).point > predicted(**near).point
    everywhere = predicted(**geforce, transport=Transport.P2P_LEVEL_SYS)
    assert everywhere.point > predicted(**geforce, transport=Transport.SHM).point


def test_a_mean_over_a_sweep_is_compared_with_a_mean() -> None:
    """nccl-tests' last line; most sizes of a sweep are small."""
    assert predicted(message_bytes=None, note="x; avg over sweep").point < predicted(message_bytes=None).point / 3


@pytest.mark.parametrize(
    ("gpus", "collective", "gb_per_s"),
    [
        ((0, 1), Collective.P2P_UNIDIRECTIONAL, 371),
        ((0, 1), Collective.P2P_BIDIRECTIONAL, 742),
        ((0, 1, 2, 3), Collective.FAN_OUT, 371),
        ((0, 1), Collective.SENDRECV, 344),
    ],
)
def test_copies_are_predicted_by_the_links_between_two(
    gpus: tuple[int, ...], collective: Collective, gb_per_s: float
) -> None:
    """18 links of 20.6 GB/s, once, both ways, or shared out to three others."""
    assert predicted(gpus=gpus, collective=collective, message_bytes=None).point == pytest.approx(gb_per_s, rel=0.01)


def test_copies_through_the_host_share_a_switch() -> None:
    """Both ways between two TITAN-class GPUs below one switch is slower than between switches."""
    apart = {"topology": "rtx-4090-8", "gpu_model": "NVIDIA GeForce RTX 4090", "transport": Transport.P2P_OFF}
    both = Collective.P2P_BIDIRECTIONAL
    near, far = (predicted(**apart, gpus=gpus, collective=both) for gpus in ((0, 1), (0, 4)))
    assert near.point < far.point


def comparison(point: float, measured: float) -> Comparison:
    return Comparison(
        measurement(bus_bandwidth_gb_per_s=measured), Bandwidth(0.9 * point, point, 1.1 * point), "nvlink"
    )


def test_the_summary_counts_what_it_says() -> None:
    """Errors of 10 % and 0 %, both inside; order as measured."""
    found = summarise([comparison(110, 100), comparison(200, 200)])[Role.CHECK]
    assert found["links_256_mib_and_more"] == {"rows": 2, "median_error_pct": 5.0, "worst_error_pct": 10.0}
    assert (found["all_reduce"]["inside_pct"], found["all_reduce"]["mean_width_over_point"]) == (100.0, 0.2)


def test_the_text_speaks_only_of_rows_that_are_there(tmp_path: Path) -> None:
    """No figures of `None`: neither for fitted rows that a table has not, nor for one copy over PCIe."""
    table = tmp_path / "measured.csv"
    table.write_text(HEAD + 'a,rtx-4090-8,NVIDIA GeForce RTX 4090,"0,1",default,p2p_unidirectional,,20,\n')
    done = bench("--measured", str(table), "-o", "text")
    assert "check: 1 rows" in done.stdout and "None" not in done.stdout and "all-reduce" not in done.stdout


def test_rank_correlation_is_spearmans() -> None:
    """1 for the same order, -1 for the opposite, ties share a rank; without any order it has no value."""
    assert rank_correlation([comparison(p, p * p) for p in (1, 2, 3)]) == 1.0
    assert rank_correlation([comparison(p, 1 / p) for p in (1, 2, 3)]) == -1.0
    assert rank_correlation([comparison(1, 1), comparison(1, 2), comparison(3, 3)]) == pytest.approx(0.866)
    assert rank_correlation([comparison(1, 1), comparison(1, 2)]) is None


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    """Not a traceback."""
    with pytest.raises(UnreadableMeasurements, match="No such file"):
        read_measurements(tmp_path / "none.csv")


@pytest.fixture(scope="module")
def published(shared_dir: Path) -> dict[str, Any]:
    """Compare the whole published table, once."""
    table = shared_dir / "bandwidth" / "measured.csv"
    return summarise(compare(read_measurements(table), [table.parent / "machines", shared_dir / "topologies"], table))


def test_the_goals_hold_on_reports_that_were_never_fitted(published: dict[str, Any]) -> None:
    """Links from 256 MiB: median 5 %, worst 15 %; all-reduce: nine in ten inside, order as measured."""
    links, reduces = published[Role.CHECK]["links_256_mib_and_more"], published[Role.CHECK]["all_reduce"]
    assert links["rows"] >= 10 and links["median_error_pct"] <= 5 and links["worst_error_pct"] <= 15
    assert reduces["rows"] >= 10 and reduces["inside_pct"] >= 90 and reduces["rank_correlation"] >= 0.95


def test_the_page_says_what_the_command_prints(published: dict[str, Any]) -> None:
    """The figures of docs/explanation/bandwidth.md are those of today's model, the bad ones too."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "explanation" / "bandwidth.md").read_text(encoding="utf-8")
    rows = {line.split("|")[2].strip(): line for line in page.splitlines() if line.startswith("| ") and "**" in line}
    for name, part, key in (
        ("error of the point, median", "links_256_mib_and_more", "median_error_pct"),
        ("worst", "links_256_mib_and_more", "worst_error_pct"),
        ("inside the interval", "all_reduce", "inside_pct"),
        ("rank correlation (Spearman)", "all_reduce", "rank_correlation"),
        ("width of the interval over the point, mean", "all_reduce", "mean_width_over_point"),
    ):
        fit, check = (f"{published[role][part][key]:g}" for role in (Role.FIT, Role.CHECK))
        assert f"| {fit}" in rows[name] and f"| **{check}" in rows[name], name
