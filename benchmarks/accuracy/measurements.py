"""Published bandwidth measurements: reading them, and which of them the model was fitted on.

A *report* is what one source says of one machine. Rows of a report are never split between fitting and checking, because they
share the machine, its settings and its faults. The rule was set before anything was fitted. Reports are classed by what
most of their rows run over (NVSwitch, NVLink, PCIe; the first row decides a tie) and by compute capability. That is how
NCCL's constants are kept. Of each class the report with most rows is fitted, the first one of equals, and **all others
are checks**. `FITTED` is what that rule gave on 110 rows of 30 reports. It is a list and not a computation, so that rows
of other measurements are never called fitted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TypeVar

from benchmarks.shared import shared_folder
from topology.bandwidth.collectives import Collective

PEAK_MESSAGE_BYTES = 8 * 2**30
"""What a row without a message size is taken to be: the peak of a sweep to the usual end."""
AVERAGE_WORDS = ("avg over", "average over", "avg bus bandwidth")
"""Words of a row's note that make its figure the mean over a sweep."""


class Role(StrEnum):
    """Whether a row's report was fitted."""

    FIT = "fit"
    CHECK = "check"


class Transport(StrEnum):
    """What the run's settings forced."""

    DEFAULT = "default"
    NVLS = "nvls"
    RING = "ring"
    P2P_OFF = "p2p-off"
    P2P_PATCHED_DRIVER = "p2p-patched-driver"
    P2P_LEVEL_SYS = "p2p-level-sys"
    SHM = "shm"
    COPY_ENGINE = "copy-engine"


FITTED = frozenset({
    ("a100_sxm4_8_nvswitch", "stas00/ml-engineering"),
    ("h200_sxm_8_nvswitch", "stas00/ml-engineering"),
    ("b200_sxm_8_nvswitch", "stas00/ml-engineering"),
    ("p100_sxm2_4_c4130", "Dell PowerEdge C4130"),
    ("v100_sxm2_8_cubemesh_virtualised", "public GitHub file id 41793431922"),
    ("a100_sxm4_4_nv4_polaris", "NVIDIA/nccl-tests#331"),
    ("h100_pcie_2_nv12_bridge", "NVIDIA/nccl#1161"),
    ("dgx1v_8xv100_4hca", "openhackathons-org/gpubootcamp"),
    ("titanrtx_8_switch_pairs", "public GitHub file id 1424345504"),
    ("a100_4_nv12_nv10_degraded_pair", "public GitHub file id 71524888407"),
    ("a40_8_nv4_pairs", "public GitHub file id 40707345933"),
    ("rtx4090_8_sys_8numa_epyc", "public GitHub file id 41849773201"),
    ("rtx5090_8_node_sys", "NVIDIA/nccl#1639"),
})  # fmt: skip
"""(topology, how the source's name begins) of the reports that were fitted."""


class UnreadableMeasurements(Exception):
    """A table that cannot be used; the text names file, line and reason."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One published figure."""

    id: str
    topology: str
    """File stem, or a machine of the catalogue."""
    gpu_model: str
    gpus: tuple[int, ...]
    """Indexes."""
    transport: Transport
    collective: Collective
    message_bytes: int | None
    """`None`: the source gives a peak or a mean only."""
    bus_bandwidth_gb_per_s: float
    note: str
    source: str
    line: int

    @property
    def role(self) -> Role:
        """Whether the row belongs to a report that was fitted."""
        fitted = any(topology == self.topology and self.source.startswith(beginning) for topology, beginning in FITTED)
        return Role.FIT if fitted else Role.CHECK

    @property
    def is_average(self) -> bool:
        """Whether the figure is the mean over a sweep of sizes, as nccl-tests prints it last."""
        return self.message_bytes is None and any(word in self.note.lower() for word in AVERAGE_WORDS)


def default_table() -> Path:
    """Return where the published table lies."""
    return shared_folder() / "bandwidth" / "measured.csv"


def read_measurements(path: Path) -> list[Measurement]:
    """Return the rows of a CSV table with the columns of `Measurement`; raises `UnreadableMeasurements`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as failed:
        raise UnreadableMeasurements(f"{path}: {failed.strerror}") from failed
    except UnicodeDecodeError as broken:
        line = broken.object.count(b"\n", 0, broken.start) + 1
        raise UnreadableMeasurements(f"{path}:{line}: not UTF-8 text") from broken
    table = csv.DictReader(StringIO(text, newline=""), strict=True)
    try:
        found = list(_rows(path, table))
    except csv.Error as broken:
        raise UnreadableMeasurements(f"{path}:{table.line_num + 1}: {broken}") from broken
    if not found:
        raise UnreadableMeasurements(f"{path}: no row below the columns")
    return found


_Word = TypeVar("_Word", bound=StrEnum)
_NEEDED = ("id", "topology", "gpu_model", "gpu_set", "transport", "collective", "bus_bandwidth_gb_per_s")


def _rows(path: Path, table: csv.DictReader[str]) -> Iterator[Measurement]:
    missing = [column for column in _NEEDED if column not in (table.fieldnames or ())]
    if missing:
        raise UnreadableMeasurements(f"{path}:1: no column {', '.join(missing)}")
    seen: set[str] = set()
    for cells in table:
        row = {column: (cell or "").strip() for column, cell in cells.items() if isinstance(column, str)}
        try:
            if None in cells:
                raise ValueError("more cells than columns")
            if row["id"] in seen:
                raise ValueError(f"id {row['id']!r} stands in an earlier line too")
            yield _measurement(row, table.line_num)
        except ValueError as broken:
            raise UnreadableMeasurements(f"{path}:{table.line_num}: {broken}") from broken
        seen.add(row["id"])


def _measurement(row: dict[str, str], line: int) -> Measurement:
    for column in _NEEDED:
        if not row[column]:
            raise ValueError(f"{column} is empty")
    return Measurement(
        id=row["id"],
        topology=row["topology"],
        gpu_model=row["gpu_model"],
        gpus=_indexes(row["gpu_set"]),
        transport=_word(Transport, "transport", row["transport"]),
        collective=_word(Collective, "collective", row["collective"]),
        message_bytes=_bytes(row["message_bytes"]) if row.get("message_bytes") else None,
        bus_bandwidth_gb_per_s=_rate(row["bus_bandwidth_gb_per_s"]),
        note=row.get("note", ""),
        source=row.get("source", ""),
        line=line,
    )


def _indexes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and len(part) <= 4 for part in parts):
        raise ValueError(f"gpu_set {text!r} is no list of GPU indexes")
    indexes = tuple(sorted(map(int, parts)))
    if len(set(indexes)) < len(indexes):
        raise ValueError(f"gpu_set {text!r} names a GPU twice")
    if len(indexes) < 2:
        raise ValueError(f"gpu_set {text!r} is one GPU, which has nobody to talk to")
    return indexes


def _word(words: type[_Word], column: str, text: str) -> _Word:
    try:
        return words(text)
    except ValueError as unknown:
        raise ValueError(f"{column} {text!r} is none of {', '.join(words)}") from unknown


def _bytes(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) <= 18 and int(text)):
        raise ValueError(f"message_bytes {text!r} is no number of bytes")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError as unreadable:
        raise ValueError(f"bus_bandwidth_gb_per_s {text!r} is no number") from unreadable
    if not 0 < rate < 1e6:
        raise ValueError(f"bus_bandwidth_gb_per_s {text!r} is no bandwidth")
    return rate
