"""Tables in a folder, plain or gzipped; what cannot be read is an error that names file, line and reason."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from benchmarks.shared import shared_folder

T = TypeVar("T")
MOST: Final = 1e12
"""Beyond it no amount is meant, and sums would leave 64 bits."""
MOST_GPUS: Final = 100_000
"""Of one job; more are no cluster's."""


class BadTrace(Exception):
    """A trace that is not there or cannot be read; the text names the file, the line and the reason."""


def trace_folder(given: Path | None, name: str) -> Path:
    """Return the folder of a trace: the one given, else `traces/NAME` beside the checkout or under GPUTOPO_SHARED."""
    given = given or shared_folder() / "traces" / name
    if not given.is_dir():
        raise BadTrace(
            f"{given} is no folder: name the trace with --trace (docs/how-to/compare-placements.md says where to get {name})"
        )
    return given


def workload_file(name: str, trace: Path | None) -> Path:
    """Return a table of measurements that a trace is joined with: in the trace's own folder, else in `workloads`.

    Plain or gzipped; where there is none, the plain name in `workloads`, which cannot be read then.
    """
    folders = [*([trace] if trace else []), shared_folder() / "workloads"]
    candidates = (folder / file for folder in folders for file in (name, f"{name}.gz"))
    return next((path for path in candidates if path.is_file()), folders[-1] / name)


def tables(folder: Path, pattern: str) -> dict[str, Path]:
    """Return what stands for `*` in the names of the files that match, `.csv` or `.csv.gz`, and the files.

    Raises `BadTrace` where a file is there in both forms.
    """
    head, _, tail = pattern.partition("*")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".gz")
        if name.startswith(head) and name.endswith(tail) and len(name) >= len(head) + len(tail):
            other = found.setdefault(name[len(head) : len(name) - len(tail)], path)
            if other != path:
                raise BadTrace(f"{folder} holds both {other.name} and {path.name}, one is needed")
    return found


def read_rows(path: Path, columns: tuple[str, ...], make: Callable[[dict[str, str]], T]) -> list[T]:
    """Return what `make` turns each row into; `columns` are those that have to be there, others may be."""
    return list(_rows(path, columns, make))


def amount(row: Mapping[str, str], column: str, most: float = MOST) -> float:
    """Return a number from 0 to `most`."""
    try:
        found = float(row[column])
    except ValueError as unreadable:
        raise ValueError(f"{column} {row[column]!r} is no number") from unreadable
    if not 0 <= found <= most:
        raise ValueError(f"{column} {row[column]!r} is not between 0 and {most:,.0f}")
    return found


def whole(row: Mapping[str, str], column: str, most: float = MOST) -> int:
    """Return a whole number from 0 to `most`; `4000.0`, as tables with gaps are often written, is one too."""
    found = amount(row, column, most)
    if not found.is_integer():
        raise ValueError(f"{column} {row[column]!r} is no whole number")
    return int(found)


def _rows(path: Path, columns: tuple[str, ...], make: Callable[[dict[str, str]], T]) -> Iterator[T]:
    try:
        with _open(path) as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise BadTrace(f"{path}: no column {missing[0]!r}")
            twice = [column for column in columns if (reader.fieldnames or ()).count(column) > 1]
            if twice:
                raise BadTrace(f"{path}: two columns {twice[0]!r}")
            for row in reader:
                try:
                    yield make(_complete(row, columns))
                except ValueError as wrong:
                    raise BadTrace(f"{path}, line {reader.line_num}: {wrong}") from wrong
    except UnicodeDecodeError as broken:
        raise BadTrace(f"{path}, line {_line_of_bad_text(path)}: not UTF-8 text") from broken
    except csv.Error as broken:
        raise BadTrace(f"{path}, line {reader.line_num + 1}: {broken}") from broken
    except OSError as failed:
        raise BadTrace(f"{path}: {failed.strerror or failed}") from failed
    except (EOFError, zlib.error) as broken:
        raise BadTrace(f"{path}: {broken}") from broken


def _line_of_bad_text(path: Path) -> int:
    with _open(path, errors="surrogateescape") as file:
        return next(number for number, line in enumerate(file, start=1) if re.search("[\udc80-\udcff]", line))


def _open(path: Path, errors: str = "strict") -> IO[str]:
    # Spreadsheets begin their UTF-8 with a byte order mark, which would be part of the first column's name.
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")
    return path.open(encoding="utf-8-sig", errors=errors, newline="")


def _complete(row: dict[str | Any, str | Any], columns: tuple[str, ...]) -> dict[str, str]:
    """Return the row without blanks around its cells, if it has a cell for each of these columns and no more than it may."""
    # The reader puts what is beyond the last column under `None`, and gives `None` for what is not there.
    if any(map(str.strip, row.pop(None, ()))):
        raise ValueError("more cells than columns")
    found = {column: cell.strip() for column, cell in row.items() if cell is not None}
    missing = [column for column in columns if column not in found]
    if missing:
        raise ValueError(f"no cell for {missing[0]!r}")
    return found
