"""The cells and affinities in a `topo -m` text, whatever became of its layout on the way here.

Nothing depends on aligned columns, on the legend, or on the text around the matrix. Prompts, comments and ANSI codes are
passed over. Labels and cells may run together, and trailing columns may be missing, blank or glued. A text that
contradicts itself is refused with line and column, counted in what is visible; of what is left out `warn` hears.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from topology.errors import SourceError
from topology.formats.matrix_lines import (
    CELL,
    CELLS,
    NUMBERS,
    PEER_STATUS,
    MatrixBlock,
    MatrixLine,
    blocks,
    is_ascending,
    visible_lines,
)
from topology.node.model import MAX_GPUS, MAX_NICS

GPU: Final = re.compile(r"GPU(0|[1-9]\d{0,3})", re.ASCII)
Warn = Callable[[int, str], None]
"""Gets the line of what is left out, and a sentence about it."""

_PLAIN_LABEL = re.compile(r"GPU(?:0|[1-9]\d{0,3})|NIC\d{1,4}|mlx\d_\d{1,4}", re.ASCII)
_NIC_NAME = re.compile(r"[A-Za-z][\w.:-]*\d[\w.:-]*", re.ASCII)
_TRAILING = re.compile(r"(CPU)\s*Affinity|(NUMA)\s*Affinity|(GPU)\s*NUMA\s*ID")
_NIC_LEGEND = re.compile(r"(?:^|.*\W)(NIC\d{1,4}):\s+(\S+)", re.ASCII)
_UNKNOWN = "?"
"""How we print a cell that a partial matrix left out."""
_NOTHING = "N/A"


@dataclass(frozen=True, slots=True)
class AffinityColumns:
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
    rows: dict[str, AffinityColumns] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    """NIC label → the kernel's name."""
    cells: dict[tuple[str, str], tuple[str, int, int]] = field(default_factory=dict)

    def cell(self, one: str, other: str) -> str | None:
        """Return the cell of two devices from whichever row shows it; `SOC` reads `SYS`."""
        found = self.cells.get((one, other)) or self.cells.get((other, one))
        return found and found[0]

    def put(self, row: str, column: str, cell: str, line: int, at: int) -> None:
        """Believe a cell, or refuse it: both halves of a matrix say the same."""
        if (cell == "X") != (row == column):
            raise SourceError(line, at, f"{row} to {column} reads {cell}: X belongs where row and column meet")
        if cell.startswith("NV") and not (GPU.fullmatch(row) and GPU.fullmatch(column)):
            raise SourceError(line, at, f"{row} to {column} reads {cell}, but only GPUs have NVLinks")
        mirrored, there, where = self.cells.get((column, row), (cell, 0, 0))
        if mirrored != cell:
            place = f"line {there}, column {where}"
            raise SourceError(
                line, at, f"{row} to {column} reads {cell}, but {column} to {row} reads {mirrored} ({place})"
            )
        self.cells[row, column] = cell, line, at


def read_table(text: str, warn: Warn = lambda _line, _what: None) -> Table:
    """Return the first matrix in `text`; raises `SourceError`."""
    lines = visible_lines(text)
    table: Table | None = None
    empty: Table | None = None
    refused: SourceError | None = None
    left_out: list[tuple[int, str]] = []
    for block in blocks(lines, lambda line: _read_header(line) is not None):
        header = _read_header(block.header)
        if header is None:
            raise SourceError(block.header.number, 1, "a header that was wrapped, and cannot be joined")
        if peer := next(filter(None, map(_peer_status, block.rows)), None):
            refused = refused or peer
            left_out.append((block.header.number, "a matrix of peer access (topo -p2p) is left out"))
        elif table is None and block.rows:
            table = _read_rows(header, block, warn)
        elif block.rows and table and not _says_the_same(table, header, block):
            left_out.append((block.header.number, "another matrix is left out"))
        empty = empty or header
    if table is None:
        raise refused or _no_matrix(lines, empty)
    for line, what in left_out:
        warn(line, what)
    table.legend |= {found[1]: found[2] for line in lines[table.line :] if (found := _NIC_LEGEND.match(line))}
    return table


def _no_matrix(lines: Sequence[str], empty: Table | None) -> SourceError:
    if empty:
        return SourceError(empty.line, 1, "no row of a GPU follows the header")
    named = next((number for number, line in enumerate(lines, start=1) if re.search(r"\bGPU\d", line)), None)
    if named:
        return SourceError(named, 1, "no matrix: this line names a GPU, but is no header (GPU0, GPU1, …)")
    return SourceError(0, 0, "no matrix: no line names the GPUs (GPU0, GPU1, …)")


def _peer_status(row: MatrixLine) -> SourceError | None:
    """Return why a row is none of `topo -m`, if it is one of `topo -p2p`."""
    words = list(re.finditer(r"\S+", row.text))
    status = next((word for word in words[1:] if PEER_STATUS.fullmatch(word[0])), None)
    if status is None or any(CELL.fullmatch(word[0]) and word[0] != "X" for word in words[1:]):
        return None
    reason = f"a cell reads {status[0]}, which is no link: this is a matrix of peer access (topo -p2p)"
    return SourceError(row.number, status.start() + 1, reason)


def _read_rows(table: Table, block: MatrixBlock, warn: Warn) -> Table:
    for row in block.rows:
        _read_row(table, row, warn)
    if not any(map(GPU.fullmatch, table.rows)):
        raise SourceError(table.line, 1, "no row of a GPU follows the header")
    return table


def _says_the_same(table: Table, header: Table, block: MatrixBlock) -> bool:
    try:
        again = _read_rows(header, block, lambda _line, _what: None)
    except SourceError:
        return False
    cells = {pair: cell[0] for pair, cell in table.cells.items()}
    return cells == {pair: cell[0] for pair, cell in again.cells.items()} and table.rows == again.rows


def _read_header(header: MatrixLine) -> Table | None:
    first = re.search(r"(?<!\w)GPU\d", header.text)
    if first is None:
        return None
    line = " " * first.start() + header.text[first.start() :]
    trailing = tuple((next(filter(None, found.groups())), found.start()) for found in _TRAILING.finditer(line))
    devices: list[str] = []
    for word in line[: trailing[0][1] if trailing else None].split():
        labels = _PLAIN_LABEL.findall(word)
        if "".join(labels) == word:
            devices += labels
        elif devices and _NIC_NAME.fullmatch(word) and not CELL.fullmatch(word):
            devices.append(word)
        else:
            return None
    if not devices or not GPU.fullmatch(devices[0]):
        return None
    if cut := _TRAILING.sub("", line[trailing[0][1] :]).strip(" \t|") if trailing else "":
        raise SourceError(header.number, line.rfind(cut) + 1, f"{cut[:32]!r} names no column: was the header cut?")
    if len(set(devices)) < len(devices):
        raise SourceError(header.number, 1, "the header names a device twice")
    gpus = sum(1 for name in devices if GPU.fullmatch(name))
    if gpus > MAX_GPUS or len(devices) - gpus > MAX_NICS:
        raise SourceError(header.number, 1, f"more than {MAX_GPUS} GPUs or {MAX_NICS} NICs")
    return Table(header.number, tuple(devices), trailing)


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)


def _words(line: str, devices: Sequence[str]) -> Iterator[_Word]:
    """Give the words of a row; cells that run together, and a list that runs into the last of them, come one by one."""
    left = len(devices) + 1
    for found in re.finditer(r"\S+", line):
        word, at = found[0], found.start()
        cells = CELLS.match(word)
        rest = word[cells.end() :] if cells else ""
        is_run = cells is not None and left <= len(devices) and (not rest or (NUMBERS.fullmatch(rest) is not None))
        parts = list(CELL.finditer(word, 0, cells.end())) if cells and is_run else []
        if not parts or (rest and (parts[-1][0].startswith("NV") or len(parts) != left)):
            yield _Word(word, at)
            left -= 1
            continue
        for part in parts:
            yield _Word(part[0], at + part.start())
            left -= 1
        if rest:
            yield _Word(rest, at + len(word) - len(rest))


def _read_row(table: Table, row: MatrixLine, warn: Warn) -> None:
    number = row.number
    line = _from_device(table, row.text)
    words = list(_words(line, table.devices))
    if not words or not _is_row(table, words, number):
        return
    name = words.pop(0).text
    shown = 0
    for column, word in zip(table.devices, words, strict=False):
        cell = "SYS" if word.text == "SOC" else word.text
        shown += 1
        if cell == _UNKNOWN:
            continue
        if not CELL.fullmatch(cell):
            raise SourceError(number, word.at + 1, f"{name} to {column} reads {cell}, which is no link")
        table.put(name, column, cell, number, word.at + 1)
    rest = words[shown:]
    if rest and CELL.fullmatch(rest[0].text):
        raise SourceError(number, rest[0].at + 1, f"more cells than the header has devices: {len(table.devices)}")
    table.rows[name] = (
        _affinity(table, replace(row, text=line), words[shown - 1].end, warn) if rest else AffinityColumns()
    )


def _from_device(table: Table, line: str) -> str:
    """Blank what another program put before the device of a row."""
    if line.split(maxsplit=1)[0] in table.devices:
        return line
    first = re.search(r"(?<!\w)(GPU\d{1,4}):?(?=\s)", line, re.ASCII)
    return line if first is None else (" " * first.start() + first[1]).ljust(first.end()) + line[first.end() :]


def _is_row(table: Table, words: Sequence[_Word], number: int) -> bool:
    """Prose may begin with a device, too; but a row that does not belong to the matrix means that it is broken."""
    name, at = words[0].text, words[0].at + 1
    has_cells = len(words) > 1 and (words[1].text == _UNKNOWN or CELL.fullmatch(words[1].text) is not None)
    if name not in table.devices:
        if has_cells and (_PLAIN_LABEL.fullmatch(name) or _NIC_NAME.fullmatch(name)):
            raise SourceError(number, at, f"a row of {name}, which the header does not name")
        if sum(1 for word in words if CELL.fullmatch(word.text)) > 1:
            raise SourceError(number, at, "cells without the device of their row")
        return False
    if name in table.rows:
        if has_cells:
            raise SourceError(number, at, f"a second row of {name}")
        return False
    return has_cells or len(words) == 1 or GPU.fullmatch(name) is not None


def _affinity(table: Table, row: MatrixLine, end: int, warn: Warn) -> AffinityColumns:
    """Read what stands behind the cells, which end at `end`.

    Three layouts: tabs (nvidia-smi doubles the one before an `N/A` in the last column), columns that line up with the header,
    and neither. In the last a lone number is a NUMA node and a list is a CPU list.
    """
    columns = [name for name, _ in table.trailing] or ["CPU", "NUMA", "GPU"]
    line = _without_note(table, row, end, warn)
    fields = [part.strip() for part in line[end:].split("\t")[1:]]
    if len(fields) == len(columns) + 1 and not fields[-2]:
        del fields[-2]
    words = list(re.finditer(r"\S+", re.sub(r"(?<=\d)N/A\b", " N/A", line[end:])))
    if len(words) > len(columns):
        raise SourceError(row.number, end + words[len(columns)].start() + 1, "more values than the header has columns")
    if len(fields) == len(columns):
        values = dict(zip(columns, fields, strict=True))
    elif len(words) == len(columns):
        values = dict(zip(columns, (word[0] for word in words), strict=True))
    elif words and not row.is_aligned:
        raise SourceError(row.number, end + 1, "the line was wrapped, and has fewer values than the header has columns")
    else:
        values = _by_place(table, words, end) or _by_form(columns, [word[0] for word in words])
    values = {name: value for name, value in values.items() if NUMBERS.fullmatch(value)}
    if "NUMA" in columns and "NUMA" not in values:
        values |= _unglued(values.get("CPU", ""))
    if broken := next((value for value in values.values() if not is_ascending(value)), None):
        at = line.find(broken, end) + 1
        raise SourceError(row.number, at, f"{broken} is no list of CPUs or NUMA nodes: was the line cut or wrapped?")
    return AffinityColumns(values.get("CPU"), values.get("NUMA"), values.get("GPU"))


def _without_note(table: Table, row: MatrixLine, end: int, warn: Warn) -> str:
    """Return the line up to the first word that is no value; without names of columns a note makes all values part of it."""
    for word in re.finditer(r"\S+", row.text[end:]):
        if not NUMBERS.fullmatch(re.sub(r"N/A$", "", word[0]) or "0"):
            start = end + word.start() if table.trailing else end
            warn(row.number, f"{row.text[start:].strip()[:60]!r} after the cells is left out")
            return row.text[:start].rstrip() if table.trailing else row.text[:end]
    return row.text


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
