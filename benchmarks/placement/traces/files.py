"""Tables in a folder, plain or gzipped; what cannot be read is an error that names file, line and reason."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


class BadTrace(Exception):
    """A trace that is not there or cannot be read; the text names the file, the line and the reason."""


def trace_folder(given: Path | None, name: str) -> Path:
    """Return the folder of a trace: the one given, else `traces/NAME` beside the checkout or under GPUTOPO_SHARED."""
    given = given or _shared() / "traces" / name
    if not given.is_dir():
        raise BadTrace(
            f"{given} is no folder: name the trace with --trace (docs/benchmarks.md says where to get {name})"
        )
    return given


def workload_file(name: str, trace: Path | None) -> Path:
    """Return a table of measurements that a trace is joined with: in the trace's own folder, else in `workloads`."""
    beside = trace / name if trace else None
    if beside and beside.is_file():
        return beside
    return _shared() / "workloads" / name


def _shared() -> Path:
    named = os.environ.get("GPUTOPO_SHARED")
    return Path(named) if named else Path(__file__).parents[4] / "shared"


def tables(folder: Path, pattern: str) -> dict[str, Path]:
    """Return what stands for `*` in the names of the files that match, `.csv` or `.csv.gz`, and the files."""
    head, _, tail = pattern.partition("*")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".gz")
        if name.startswith(head) and name.endswith(tail) and len(name) > len(head) + len(tail):
            found[name[len(head) : len(name) - len(tail)]] = path
    return found


def read_rows(path: Path, columns: tuple[str, ...], make: Callable[[dict[str, str]], T]) -> list[T]:
    """Return what `make` turns each row into; `columns` are those that have to be there."""
    return list(_rows(path, columns, make))


def _rows(path: Path, columns: tuple[str, ...], make: Callable[[dict[str, str]], T]) -> Iterator[T]:
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise BadTrace(f"{path}: no column {missing[0]!r}")
            for row in reader:
                try:
                    yield make(row)
                except (ValueError, TypeError) as wrong:
                    raise BadTrace(f"{path}, line {reader.line_num}: {wrong}") from wrong
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as failed:
        raise BadTrace(f"{path}: {failed}") from failed
