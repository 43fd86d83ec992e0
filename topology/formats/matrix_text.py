"""The cells and affinities in a `topo -m` text, whatever became of its layout on the way here.

Nothing depends on columns lining up, on the legend, or on what stands around the matrix: prompts, comments and ANSI codes are
passed over, labels may run together, trailing columns may be missing, blank or glued. A text that contradicts itself is refused
with line and column, counted in what is visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from topology.errors import SourceError
from topology.node.model import MAX_GPUS, MAX_NICS

GPU: Final = re.compile(r"GPU(0|[1-9]\d{0,3})", re.ASCII)
NUMBERS: Final = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*", re.ASCII)
"""A CPU or NUMA list: `0-31,64-95`."""

_ANSI = re.compile(r"(?:\x1b|\^\[)?\[[0-9;]*[mK]|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\(B")
"""nvidia-smi underlines the header; the escape character itself is often lost in copying."""
_PLAIN_LABEL = re.compile(r"GPU(?:0|[1-9]\d{0,3})|NIC\d{1,4}|mlx\d_\d{1,4}", re.ASCII)
_NIC_NAME = re.compile(r"[A-Za-z][\w.:-]*\d[\w.:-]*", re.ASCII)
_TRAILING = re.compile(r"(CPU)\s*Affinity|(NUMA)\s*Affinity|(GPU)\s*NUMA\s*ID")
_CELL = re.compile(r"X|NV[1-9]\d{0,2}|PIX|PXB|PHB|NODE|SYS|SOC", re.ASCII)
_LEGEND = re.compile(r"\s*(?:Legend|Where)\s*:")
_NIC_LEGEND = re.compile(r"\s*(NIC\d{1,4}):\s+(\S+)", re.ASCII)
_UNKNOWN = "?"
"""How we print a cell that a partial matrix left out."""
_NOTHING = "N/A"


@dataclass(frozen=True, slots=True)
class Affinity:
    """What stands in the three columns behind the cells; `None` where nothing does."""

    cpus: str | None = None
    numa: str | None = None
    memory_numa: str | None = None


@dataclass(slots=True)
class Table:
    """The matrix as text, cell by cell."""

    line: int
    """The header's, from 1."""
    devices: tuple[str, ...]
    trailing: tuple[tuple[str, int], ...]
    """(`CPU`, `NUMA` or `GPU`, where the header names that column), left to right."""
    rows: dict[str, Affinity] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    """NIC label → the kernel's name."""
    _cells: dict[tuple[str, str], tuple[str, int, int]] = field(default_factory=dict)

    def cell(self, one: str, other: str) -> str | None:
        """Return the cell of two devices from whichever row shows it; `SOC` reads `SYS`."""
        found = self._cells.get((one, other)) or self._cells.get((other, one))
        return found and found[0]

    def put(self, row: str, column: str, cell: str, line: int, at: int) -> None:
        """Believe a cell, or refuse it: both halves of a matrix say the same."""
        if (cell == "X") != (row == column):
            raise SourceError(line, at, f"{row} to {column} reads {cell}: X belongs where row and column meet")
        if cell.startswith("NV") and not (GPU.fullmatch(row) and GPU.fullmatch(column)):
            raise SourceError(line, at, f"{row} to {column} reads {cell}, but only GPUs have NVLinks")
        mirrored, there, where = self._cells.get((column, row), (cell, 0, 0))
        if mirrored != cell:
            place = f"line {there}, column {where}"
            raise SourceError(
                line, at, f"{row} to {column} reads {cell}, but {column} to {row} reads {mirrored} ({place})"
            )
        self._cells[row, column] = cell, line, at


def read_table(text: str) -> Table:
    """Return the first matrix in `text`; raises `SourceError`."""
    lines = [_ANSI.sub("", line).rstrip("\r") for line in text.lstrip("\ufeff").split("\n")]
    table: Table | None = None
    for number, line in enumerate(lines, start=1):
        header = _read_header(line, number)
        if table and table.rows and (header or _LEGEND.match(line)):
            break
        if header:
            table = header
        elif table:
            _read_row(table, line, number)
    if table is None:
        raise SourceError(0, 0, "no matrix: no line names the GPUs (GPU0, GPU1, …)")
    if not any(map(GPU.fullmatch, table.rows)):
        raise SourceError(table.line, 1, "no row of a GPU follows the header")
    table.legend |= {found[1]: found[2] for line in lines[table.line :] if (found := _NIC_LEGEND.match(line))}
    return table


def _read_header(line: str, number: int) -> Table | None:
    trailing = tuple((next(filter(None, found.groups())), found.start()) for found in _TRAILING.finditer(line))
    devices: list[str] = []
    for word in line[: trailing[0][1] if trailing else None].split():
        labels = _PLAIN_LABEL.findall(word)
        if "".join(labels) == word:
            devices += labels
        elif devices and _NIC_NAME.fullmatch(word) and not _CELL.fullmatch(word):
            devices.append(word)
        else:
            return None
    if not devices or not GPU.fullmatch(devices[0]):
        return None
    if len(set(devices)) < len(devices):
        raise SourceError(number, 1, "the header names a device twice")
    gpus = sum(1 for name in devices if GPU.fullmatch(name))
    if gpus > MAX_GPUS or len(devices) - gpus > MAX_NICS:
        raise SourceError(number, 1, f"more than {MAX_GPUS} GPUs or {MAX_NICS} NICs")
    return Table(number, tuple(devices), trailing)


def _read_row(table: Table, line: str, number: int) -> None:
    words = list(re.finditer(r"\S+", line))
    if not words or not _is_row(table, words, number):
        return
    name = words.pop(0)[0]
    shown = 0
    for column, word in zip(table.devices, words, strict=False):
        cell = "SYS" if word[0] == "SOC" else word[0]
        shown += 1
        if cell == _UNKNOWN:
            continue
        if not _CELL.fullmatch(cell):
            raise SourceError(number, word.start() + 1, f"{name} to {column} reads {cell}, which is no link")
        table.put(name, column, cell, number, word.start() + 1)
    rest = words[shown:]
    if rest and _CELL.fullmatch(rest[0][0]):
        raise SourceError(number, rest[0].start() + 1, f"more cells than the header has devices: {len(table.devices)}")
    table.rows[name] = _affinity(table, line, words[shown - 1].end()) if rest else Affinity()


def _is_row(table: Table, words: Sequence[re.Match[str]], number: int) -> bool:
    """Prose may begin with a device, too; but a row that does not belong to the matrix means that it is broken."""
    name, at = words[0][0], words[0].start() + 1
    has_cells = len(words) > 1 and (words[1][0] == _UNKNOWN or _CELL.fullmatch(words[1][0]) is not None)
    if name not in table.devices:
        if has_cells and _PLAIN_LABEL.fullmatch(name):
            raise SourceError(number, at, f"a row of {name}, which the header does not name")
        return False
    if name in table.rows:
        if has_cells:
            raise SourceError(number, at, f"a second row of {name}")
        return False
    return has_cells or len(words) == 1 or GPU.fullmatch(name) is not None


def _affinity(table: Table, line: str, end: int) -> Affinity:
    """Read what stands behind the cells, which end at `end`.

    Three layouts: tabs (nvidia-smi doubles the one before an `N/A` in the last column), columns that line up with the header,
    and neither. In the last a lone number is a NUMA node and a list is a CPU list.
    """
    columns = [name for name, _ in table.trailing] or ["CPU", "NUMA", "GPU"]
    fields = [part.strip() for part in line[end:].split("\t")[1:]]
    if len(fields) == len(columns) + 1 and not fields[-2]:
        del fields[-2]
    words = list(re.finditer(r"\S+", re.sub(r"(?<=\d)N/A\b", " N/A", line[end:])))
    if len(fields) == len(columns):
        values = dict(zip(columns, fields, strict=True))
    elif len(words) == len(columns):
        values = dict(zip(columns, (word[0] for word in words), strict=True))
    else:
        values = _by_place(table, words, end) or _by_form(columns, [word[0] for word in words])
    values = {name: value for name, value in values.items() if NUMBERS.fullmatch(value)}
    if "NUMA" in columns and "NUMA" not in values:
        values |= _unglued(values.get("CPU", ""))
    return Affinity(values.get("CPU"), values.get("NUMA"), values.get("GPU"))


def _by_place(table: Table, words: Sequence[re.Match[str]], offset: int) -> dict[str, str]:
    """Return something only if every value stands exactly under the name of a column."""
    names = {at: name for name, at in table.trailing}
    if not all(offset + word.start() in names for word in words):
        return {}
    return {names[offset + word.start()]: word[0] for word in words}


def _by_form(columns: Sequence[str], words: Iterable[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        if word == _NOTHING:
            continue
        is_numa = "CPU" in values or (word.isdecimal() and "NUMA" in columns)
        name = "CPU" if not is_numa else "GPU" if "NUMA" in values else "NUMA"
        if name in columns:
            values.setdefault(name, word)
    return values


def _unglued(cpus: str) -> dict[str, str]:
    """Split `0-31,64-950` into `0-31,64-95` and `0`: the hardware threads of one NUMA node come in ranges of one size."""
    for digits in (1, 2):
        head, node = cpus[:-digits], cpus[-digits:]
        whole = NUMBERS.fullmatch(head) and node.isdecimal()
        if whole and len(_range_sizes(cpus)) > len(_range_sizes(head)) == 1 and "," in head:
            return {"CPU": head, "NUMA": node}
    return {}


def _range_sizes(cpus: str) -> set[int]:
    ends = (part.split("-") for part in cpus.split(","))
    return {int(pair[-1]) - int(pair[0]) for pair in ends}
