"""The measurement table: strict about its form, and divided as the rule says."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from benchmarks.accuracy.measurements import (
    FITTED,
    Measurement,
    Role,
    Transport,
    UnreadableMeasurements,
    read_measurements,
)
from topology.formats.matrix import parse_matrix
from topology.node.architectures import architecture_of

HEAD = "id,topology,gpu_model,gpu_set,transport,collective,message_bytes,bus_bandwidth_gb_per_s,note,source\n"
GOOD = 'r1,hgx-h100,NVIDIA H100 80GB HBM3,"0,1",default,all_reduce,1048576,20.5,,someone\n'


def reading(folder: Path, text: str) -> list[Measurement]:
    table = folder / "measured.csv"
    table.write_text(text, encoding="utf-8")
    return read_measurements(table)


def test_reads_a_row(tmp_path: Path) -> None:
    """Indexes, bytes and GB/s; a report that nobody fitted is a check."""
    (row,) = reading(tmp_path, HEAD + GOOD)
    assert (row.gpus, row.message_bytes, row.bus_bandwidth_gb_per_s) == ((0, 1), 1 << 20, 20.5)
    assert (row.role, row.transport, row.is_average) == (Role.CHECK, Transport.DEFAULT, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id,topology\nr1,x\n", ":1: no column gpu_model"),
        ("", ":1: no column id"),
        (HEAD + GOOD + GOOD, ":3: id 'r1' stands in an earlier line too"),
        (HEAD + GOOD.replace('"0,1"', '"0,x"'), ":2: gpu_set '0,x' is no list of GPU indexes"),
        (HEAD + GOOD.replace('"0,1"', '"1,1"'), ":2: gpu_set '1,1' names a GPU twice"),
        (HEAD + GOOD.replace('"0,1"', "3"), ":2: gpu_set '3' is one GPU"),
        (HEAD + GOOD.replace("default", "magic"), ":2: transport 'magic' is none of default, nvls"),
        (HEAD + GOOD.replace("all_reduce", "gossip"), ":2: collective 'gossip' is none of all_reduce"),
        (HEAD + GOOD.replace("1048576", "1M"), ":2: message_bytes '1M' is no number of bytes"),
        (HEAD + GOOD.replace("20.5", "fast"), ":2: bus_bandwidth_gb_per_s 'fast' is no number"),
        (HEAD + GOOD.replace("20.5", "nan"), ":2: bus_bandwidth_gb_per_s 'nan' is no bandwidth"),
        (HEAD + GOOD.replace("20.5", ""), ":2: bus_bandwidth_gb_per_s is empty"),
        (HEAD + GOOD.rstrip() + ",more\n", ":2: more cells than columns"),
        (HEAD + GOOD + '"r2"x,\n', ":3: ',' expected after"),
        (HEAD, "no row below the columns"),
    ],
)
def test_a_bad_table_is_refused_with_line_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    """File, line, column and what was wrong."""
    with pytest.raises(UnreadableMeasurements) as refused:
        reading(tmp_path, text)
    assert str(tmp_path) in str(refused.value) and reason in str(refused.value)


def test_a_table_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    """As spreadsheets write it."""
    (tmp_path / "table.csv").write_bytes((HEAD + GOOD.replace("r1", "r\xe9")).encode("latin-1"))
    with pytest.raises(UnreadableMeasurements, match=r"table\.csv:2: not UTF-8 text"):
        read_measurements(tmp_path / "table.csv")


def test_the_fitted_reports_are_those_of_the_rule(shared_dir: Path) -> None:
    """Of each class (what most rows run over, compute capability) the report with most rows, the first one of equals."""
    reports: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for row in read_measurements(shared_dir / "bandwidth" / "measured.csv"):
        reports[row.topology, row.source].append(row)
    best: dict[tuple[str, object], tuple[str, str]] = {}
    for report, rows in reports.items():
        kind = Counter(link_kind(shared_dir, row) for row in rows).most_common(1)[0][0]
        known = architecture_of(rows[0].gpu_model)
        key = kind, known and known.compute_capability
        if key not in best or len(rows) > len(reports[best[key]]):
            best[key] = report
    fitted = {report for report, rows in reports.items() if rows[0].role is Role.FIT}
    assert fitted == set(best.values()) and len(fitted) == len(FITTED)


def link_kind(shared: Path, row: Measurement) -> str:
    if row.transport is Transport.P2P_OFF:
        return "pcie"
    folders = (shared / "bandwidth" / "machines", shared / "topologies")
    text = next(path for folder in folders if (path := folder / f"{row.topology}.topo.txt").exists()).read_text()
    node = parse_matrix(text, row.gpu_model)
    positions = [node.positions[index] for index in row.gpus]
    if all(node.gpus[i].switch_links for i in positions):
        return "nvswitch"
    joined = all(node.nvlinks(i, j) for i in positions for j in positions if i < j)
    ring = row.topology.startswith("v100_sxm2_8_cubemesh")  # not a clique, and yet its rings run over links alone
    return "nvlink" if joined or ring else "pcie"
