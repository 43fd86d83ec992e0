"""`gputopo-bench bandwidth`: the bandwidth model beside published measurements, fitted and checking reports apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from math import sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.accuracy.copies import copy_rate, fan_out_rate
from benchmarks.accuracy.measurements import PEAK_MESSAGE_BYTES, Measurement, Role, Transport, UnreadableMeasurements
from benchmarks.sources import load_topology
from topology.bandwidth.collectives import Collective
from topology.bandwidth.predict import Bandwidth, Wiring, predict
from topology.formats.catalog import MACHINES
from topology.node.links import Affinity, PciePath
from topology.node.model import Link, NodeTopology

SWEEP_BYTES = tuple(8 << doubling for doubling in range(25))
"""nccl-tests' own example, `-b 8 -e 128M -f 2`: what a mean over a sweep is taken over."""
LARGE_BYTES = 256 * 2**20
_SUFFIXES = (".topo.txt", ".txt", ".xml", ".json")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measurement and what the model says of it."""

    measured: Measurement
    predicted: Bandwidth
    over: str
    """`nvswitch`, `nvlink` or `pcie`."""

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted.point / self.measured.bus_bandwidth_gb_per_s - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.predicted.low <= self.measured.bus_bandwidth_gb_per_s <= self.predicted.high

    @property
    def is_large_on_links(self) -> bool:
        """Whether NVLinks carry it and the message is large enough for latencies not to matter."""
        size = self.measured.message_bytes or (0 if self.measured.is_average else PEAK_MESSAGE_BYTES)
        return self.over != "pcie" and size >= LARGE_BYTES

    def row(self) -> dict[str, Any]:
        """Return it as a JSON row."""
        measured, predicted = self.measured, self.predicted
        return {
            "id": measured.id,
            "role": measured.role,
            "topology": measured.topology,
            "gpus": measured.gpus,
            "over": self.over,
            "transport": measured.transport,
            "collective": measured.collective,
            "message_bytes": measured.message_bytes,
            "measured": measured.bus_bandwidth_gb_per_s,
            "low": round(predicted.low, 3),
            "point": round(predicted.point, 3),
            "high": round(predicted.high, 3),
            "inside": self.is_inside,
            "error_pct": round(100 * self.error, 1),
        }


def compare(measurements: Iterable[Measurement], topologies: Sequence[Path], table: Path) -> list[Comparison]:
    """Predict every row; raises `UnreadableMeasurements` where a row names what its topology does not have.

    `topologies` are the folders in which the files named in the table are looked for, in order.
    """
    load = cache(lambda name, model: load_topology(_locate(name, topologies), model))
    found = []
    for row in measurements:
        try:
            node = load(row.topology, row.gpu_model)
        except LookupError as missing:
            raise UnreadableMeasurements(
                f"{table}:{row.line}: topology {row.topology!r}: {missing.args[0]}"
            ) from missing
        unknown = [index for index in row.gpus if index not in node.positions]
        if unknown:
            raise UnreadableMeasurements(f"{table}:{row.line}: gpu_set: {row.topology} has no GPU {unknown[0]}")
        found.append(_compare(row, node))
    return found


def _locate(name: str, folders: Sequence[Path]) -> str:
    for folder in folders:
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.parent == folder and path.is_file():
                return str(path)
    if name in MACHINES:
        return name
    raise LookupError(f"no such file in {', '.join(map(str, folders)) or 'no folder'}, and no machine of the catalogue")


def _compare(row: Measurement, node: NodeTopology) -> Comparison:
    node, peer_level = _as_forced(node, row.transport)
    positions = tuple(node.positions[index] for index in row.gpus)
    if row.collective in {Collective.P2P_UNIDIRECTIONAL, Collective.P2P_BIDIRECTIONAL}:
        i, j = positions[:2]
        rate = copy_rate(node, i, j, both_ways=row.collective is Collective.P2P_BIDIRECTIONAL)
        return Comparison(row, rate, _over(node, (i, j), bool(node.nvlinks(i, j))))
    if row.collective is Collective.FAN_OUT:
        linked = all(node.nvlinks(positions[0], target) for target in positions[1:])
        return Comparison(row, fan_out_rate(node, positions[0], positions[1:]), _over(node, positions, linked))
    wiring, members = Wiring(node, peer_level), sum(1 << position for position in positions)
    forced = {Transport.NVLS: True, Transport.RING: False}.get(row.transport)
    sizes = SWEEP_BYTES if row.is_average else (row.message_bytes or PEAK_MESSAGE_BYTES,)
    found = [predict(wiring, members, size, row.collective, forced) for size in sizes]
    low, point, high = (fmean(getattr(rate, side) for rate, _ in found) for side in ("low", "point", "high"))
    mean = Bandwidth(low, point, high)
    return Comparison(row, mean, _over(node, positions, found[0][1] is Affinity.NVLINK))


def _over(node: NodeTopology, positions: Sequence[int], linked: bool) -> str:
    if not linked:
        return "pcie"
    return "nvswitch" if all(node.gpus[position].switch_links for position in positions) else "nvlink"


def _as_forced(node: NodeTopology, transport: Transport) -> tuple[NodeTopology, PciePath]:
    """Return the node as the run's settings made it, and how far peer access over PCIe reaches."""
    if transport is Transport.P2P_OFF:
        return _with_peer_access(node, False), PciePath.PXB
    if transport in {Transport.P2P_PATCHED_DRIVER, Transport.P2P_LEVEL_SYS}:
        return _with_peer_access(node, True), PciePath.SYS
    if transport is Transport.SHM:
        # Host memory is only worth forcing where peer access works: below a switch it stays.
        return _with_peer_access(node, True), PciePath.PXB
    return node, PciePath.PXB


def _with_peer_access(node: NodeTopology, works: bool) -> NodeTopology:
    known = {(link.a, link.b): link for link in node.links}
    every = combinations((gpu.index for gpu in node.gpus), 2)
    return replace(node, links=tuple(replace(known.get(pair, Link(*pair)), p2p=works) for pair in every))


def summarise(rows: Sequence[Comparison]) -> dict[str, Any]:
    """Return what the goals are about, for fitted and checking rows apart."""
    return {role: _summary([row for row in rows if row.measured.role is role]) for role in Role}


def _summary(rows: Sequence[Comparison]) -> dict[str, Any]:
    large = [abs(row.error) for row in rows if row.is_large_on_links]
    reduces = [row for row in rows if row.measured.collective is Collective.ALL_REDUCE]
    return {
        "rows": len(rows),
        "links_256_mib_and_more": {
            "rows": len(large),
            "median_error_pct": round(100 * median(large), 1) if large else None,
            "worst_error_pct": round(100 * max(large), 1) if large else None,
        },
        "all_reduce": _spread(reduces),
        "all": _spread(rows),
    }


def _spread(rows: Sequence[Comparison]) -> dict[str, Any]:
    widths = [(row.predicted.high - row.predicted.low) / row.predicted.point for row in rows]
    return {
        "rows": len(rows),
        "inside_pct": round(100 * fmean(row.is_inside for row in rows), 1) if rows else None,
        "rank_correlation": rank_correlation(rows),
        "mean_width_over_point": round(fmean(widths), 2) if rows else None,
        "median_width_over_point": round(median(widths), 2) if rows else None,
    }


def rank_correlation(rows: Sequence[Comparison]) -> float | None:
    """Return Spearman's coefficient of predicted points and measurements; `None` where it has no meaning."""
    predicted = _ranks([row.predicted.point for row in rows])
    measured = _ranks([row.measured.bus_bandwidth_gb_per_s for row in rows])
    if len(set(predicted)) < 2 or len(set(measured)) < 2:
        return None
    mean = (len(rows) + 1) / 2
    both = sum((p - mean) * (m - mean) for p, m in zip(predicted, measured, strict=True))
    spread = sum((p - mean) ** 2 for p in predicted) * sum((m - mean) ** 2 for m in measured)
    return round(both / sqrt(spread), 3)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1, equal values sharing the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def as_text(rows: Sequence[Comparison], summary: dict[str, Any]) -> str:
    """Return a table and the two summaries for people."""
    lines = [f"{'id':<6}{'role':<7}{'measured':>9}  {'low':>7}{'point':>8}{'high':>8}  {'error':>6}  run"]
    for row in rows:
        measured, predicted = row.measured, row.predicted
        lines.append(
            f"{measured.id:<6}{measured.role:<7}{measured.bus_bandwidth_gb_per_s:9.2f}  {predicted.low:7.1f}"
            f"{predicted.point:8.1f}{predicted.high:8.1f}{' ' if row.is_inside else '!'} {100 * row.error:+5.0f}%  "
            f"{measured.collective} {measured.transport} {_size(measured)}, {len(measured.gpus)} of {measured.topology}"
        )
    for role, found in summary.items():
        links, reduces = found["links_256_mib_and_more"], found["all_reduce"]
        if found["rows"]:
            lines += ["", f"{role}: {found['rows']} rows, {found['all']['inside_pct']} % of them inside the interval"]
        if links["rows"]:
            lines.append(
                f"  over NVLink or NVSwitch from 256 MiB, {links['rows']} rows: error median {links['median_error_pct']} %, "
                f"worst {links['worst_error_pct']} %"
            )
        if reduces["rows"]:
            lines.append(
                f"  all-reduce, {reduces['rows']} rows: {reduces['inside_pct']} % inside, rank correlation "
                f"{reduces['rank_correlation'] or '-'}, mean width {reduces['mean_width_over_point']} of the point"
            )
    return "\n".join(lines)


def _size(measured: Measurement) -> str:
    if measured.message_bytes is None:
        return "mean" if measured.is_average else "peak"
    mib = measured.message_bytes / 2**20
    return f"{mib / 1024:g} GiB" if mib >= 1024 else f"{mib:g} MiB"
