"""What nccl-tests prints: `all_reduce_perf` of any version, with or without a column `root`, and NCCL's own lines between."""

from __future__ import annotations

import re
from dataclasses import dataclass

from topology.errors import SourceError

CUT_SHORT = "the program did not come to its end"
_HEAD = "# nThread"
_ROW = re.compile(
    r"\s*(?P<bytes>\d+)\s+\d+\s+\w+\s+(?P<operation>\w+)\s+(?:-?\d+\s+)?"
    r"[\d.]+\s+[\d.]+\s+(?P<out_of_place>[\d.]+)\s+\S+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+\S+\s*"
)
"""Size, count, type, operation, root; then twice time, algorithm bandwidth, bus bandwidth, and what was wrong."""
_DEVICE = re.compile(r"#\s+Rank\s+\d+ .* device\s+\d+ \[(?P<bus>[0-9a-fA-Fx:.]+)\] ")
_NCCL = re.compile(r"NCCL version (?P<printed>\d+(?:\.\d+)+)|nccl-library=(?P<number>\d+)")
_VERDICT = re.compile(r"#\s*Out of bounds values : (?P<wrong>\d+) (?P<verdict>\w+)")


@dataclass(frozen=True, slots=True)
class NcclRun:
    """One run of one size."""

    message_bytes: int
    out_of_place_gb_per_s: float
    """Bus bandwidth."""


@dataclass(frozen=True, slots=True)
class NcclOutput:
    """All that was printed, of one program or of several one after the other."""

    runs: tuple[NcclRun, ...]
    buses: frozenset[int]
    """PCI bus numbers of the GPUs that took part."""
    nccl: str | None
    """Version of the library."""


def parse_nccl_tests(text: str) -> NcclOutput:
    """Return the runs; raises `SourceError` where sums were wrong, were not checked to the end, or are no all-reduce."""
    runs: list[NcclRun] = []
    buses: set[int] = set()
    version: str | None = None
    unchecked = 0
    for number, line in enumerate(text.splitlines(), 1):
        if row := _ROW.fullmatch(line):
            if row["operation"] == "none":
                raise SourceError(number, 1, "no all-reduce")
            unchecked = number
            runs.append(NcclRun(int(row["bytes"]), float(row["out_of_place"])))
        elif device := _DEVICE.match(line):
            buses.add(_bus(device["bus"]))
        elif verdict := _VERDICT.match(line):
            if verdict["verdict"] != "OK":
                raise SourceError(number, 1, f"{verdict['wrong']} values came out wrong")
            unchecked = 0
        elif unchecked and line.startswith(_HEAD):
            raise SourceError(unchecked, 1, CUT_SHORT)
        elif found := _NCCL.search(line):
            version = found["printed"] or _spelled(int(found["number"]))
    if unchecked:
        raise SourceError(unchecked, 1, CUT_SHORT)
    if not runs:
        raise SourceError(0, 0, "no row of figures")
    return NcclOutput(tuple(runs), frozenset(buses), version)


def _bus(text: str) -> int:
    """Read a bus number, which older versions print alone and newer ones within the address.

    >>> _bus("0x8d"), _bus("0009:01:00")
    (141, 1)
    """
    parts = text.split(":")
    return int(parts[-2] if len(parts) > 1 else text, 16)


def _spelled(number: int) -> str:
    """Spell NCCL's version number.

    >>> _spelled(22703), _spelled(2708)
    ('2.27.3', '2.7.8')
    """
    scale = 1000 if number < 10_000 else 10_000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"
