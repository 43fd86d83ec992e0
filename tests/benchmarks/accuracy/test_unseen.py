"""Measurements collected after the model was made: what docs/explanation/bandwidth.md says of them, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.bandwidth import Comparison, compare, summarise
from benchmarks.accuracy.measurements import Role, read_measurements

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "benchmarks" / "accuracy" / "unseen" / "measured.csv"


@pytest.fixture(scope="module")
def unseen() -> list[Comparison]:
    """Compare the table with the machines beside it and those of the catalogue, once."""
    return compare(read_measurements(TABLE), [TABLE.parent / "machines"], TABLE)


def test_none_was_fitted_or_is_in_the_published_table(unseen: list[Comparison], shared_dir: Path) -> None:
    """Neither its source nor its figure for the same machine and message."""
    published = read_measurements(shared_dir / "bandwidth" / "measured.csv")
    assert {row.measured.role for row in unseen} == {Role.CHECK}
    assert not {row.measured.source for row in unseen} & {row.source for row in published}
    figures = {(row.gpu_model, row.message_bytes, row.bus_bandwidth_gb_per_s) for row in published}
    assert not figures & {
        (row.measured.gpu_model, row.measured.message_bytes, row.measured.bus_bandwidth_gb_per_s) for row in unseen
    }


def test_every_machine_beside_the_table_is_measured(unseen: list[Comparison]) -> None:
    """35 reports; no file lies there for nothing."""
    drawn = {path.name.removesuffix(".topo.txt") for path in (TABLE.parent / "machines").iterdir()}
    assert drawn <= {row.measured.topology for row in unseen}
    assert len({row.measured.source for row in unseen}) == 35


def test_the_points_generalise_and_the_order_holds(unseen: list[Comparison]) -> None:
    """Links from 256 MiB: median 5 %, nine in twelve rows within 15 %; all-reduces in the measured order."""
    large = [abs(row.error) for row in unseen if row.is_large_on_links]
    found = summarise(unseen)[Role.CHECK]
    assert found["links_256_mib_and_more"]["median_error_pct"] <= 5
    assert sum(error <= 0.15 for error in large) >= 0.75 * len(large)
    assert found["all_reduce"]["rank_correlation"] >= 0.95


def test_the_page_says_what_the_command_prints(unseen: list[Comparison]) -> None:
    """Each figure of today's model stands in the last column, or is the first run's where that has not changed."""
    page = (ROOT / "docs" / "explanation" / "bandwidth.md").read_text(encoding="utf-8")
    section = page.split("## Unseen measurements")[1].split("\n## ")[0]
    columns = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")][2:]
    said = [(first if "same" in after else after).strip(" *%") for *_, first, after in columns]
    found = summarise(unseen)[Role.CHECK]
    links, reduces = found["links_256_mib_and_more"], found["all_reduce"]
    printed = (links["median_error_pct"], links["worst_error_pct"], reduces["inside_pct"], reduces["rank_correlation"])
    assert [float(figure) for figure in said] == [
        *printed,
        reduces["mean_width_over_point"],
        found["all"]["inside_pct"],
    ]
    assert f"({links['rows']})" in section and f"({reduces['rows']})" in section and f"all ({len(unseen)})" in section


def test_the_page_names_all_that_is_far_off(unseen: list[Comparison]) -> None:
    """Ten rows over links are wrong by more than 15 %, and these are the machines that the page speaks of."""
    far = [row.measured for row in unseen if row.is_large_on_links and abs(row.error) > 0.15]
    assert len(far) == 10
    assert {(row.gpu_model, len(row.gpus)) for row in far} == {
        ("NVIDIA B200", 2),
        ("NVIDIA H20", 8),
        ("NVIDIA A100-SXM4-80GB", 2),
        ("NVIDIA A100-SXM4-80GB", 4),
    }
