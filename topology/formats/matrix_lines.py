"""The lines of a matrix as nvidia-smi printed them, from a text that something framed, prefixed or wrapped since.

Tables of Markdown and reStructuredText lose their bars, logs and mails the text before each line. What a terminal or a mail
program wrapped is joined again. Where the text does not show how a value was written, it is refused: a list is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from topology.errors import SourceError

NUMBERS: Final = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*", re.ASCII)
"""A CPU or NUMA list: `0-31,64-95`."""
CELL: Final = re.compile(r"X|NV[1-9]\d{0,2}|PIX|PXB|PHB|NODE|SYS|SOC", re.ASCII)
CELLS: Final = re.compile(rf"(?:{CELL.pattern})+", re.ASCII)
"""One cell, or several that run together."""
PEER_STATUS: Final = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U")
"""A cell of `nvidia-smi topo -p2p`."""

_ANSI = re.compile(r"(?:\x1b|\^\[)?\[[0-9;]*[mK]|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\(B")
"""nvidia-smi underlines the header; the escape character itself is often lost in copying."""
_BARS = re.compile("[|\u2502\u2503\u2551]")
_EDGE = "\x1f"
"""Stands for a bar until lines are joined: blank as a tab is, but one column wide."""
_LABEL = re.compile(r"(?<!\w)GPU\d{1,4}", re.ASCII)
_NAME = re.compile(r"[A-Za-z][\w.:-]*\d[\w.:-]*", re.ASCII)
_LEGEND = re.compile(r"\W*(?:Legend|Where)\s*:")
_HEADER_WORD = re.compile(rf"CPU|NUMA|GPU|Affinity|ID|(?:GPU\d{{1,4}})+|{_NAME.pattern}", re.ASCII)
_HEADER_PARTS = frozenset(
    word[:end] for word in ("CPU", "NUMA", "GPU", "Affinity", "ID", "NIC", "mlx5_") for end in range(1, len(word) + 1)
)
_PARTS = frozenset(
    word[a:b] for word in ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "N/A") for a in range(4) for b in range(a + 1, 5)
)
_PART = re.compile(r"N?V\d{0,3}|[\d,-]*\d[\d,-]*(?:N/A)?|[,-]", re.ASCII)
_MAX_PIECES: Final = 40


@dataclass(frozen=True, slots=True)
class MatrixLine:
    """One line of a matrix; `number` is that of its first piece in the text, from 1."""

    number: int
    text: str
    is_aligned: bool = True
    """Whether its columns are still where they were."""


@dataclass(frozen=True, slots=True)
class MatrixBlock:
    """A header and the lines below it that begin with a device."""

    header: MatrixLine
    rows: tuple[MatrixLine, ...]
    end: int
    """The place in the lines of the text where it ends."""


def visible_lines(text: str) -> list[str]:
    """Return the lines without what only formats them."""
    return [_unframed(_ANSI.sub("", line).rstrip("\r")) for line in text.lstrip("\ufeff").split("\n")]


def blocks(lines: Sequence[str], is_header: Callable[[MatrixLine], bool]) -> Iterator[MatrixBlock]:
    """Give what looks like a matrix, from above; raises `SourceError` where the lines of one cannot be joined."""
    at = 0
    while at < len(lines):
        block = _block(lines, at, is_header) if _may_be_header(lines[at]) else None
        if block:
            yield block
        at = block.end if block else at + 1


def is_ascending(numbers: str) -> bool:
    """Whether a list rises, as all lists of the kernel do.

    >>> is_ascending("0-31,64-95"), is_ascending("64-127,192-2")
    (True, False)
    """
    ends = [int(end) for end in re.split("[,-]", numbers)]
    spans = [part.split("-") for part in numbers.split(",")]
    firsts = [int(span[0]) for span in spans]
    return ends == sorted(ends) and len(set(firsts)) == len(firsts)


def _unframed(line: str) -> str:
    """Take bars out of a row of a table, one column for one column."""
    line = line.replace("`", " ").replace("**", "  ").replace("\u200b", "").replace("\u00a0", " ")
    if len(_BARS.findall(line)) < 2:
        return line
    whole = line.rstrip()
    if _BARS.fullmatch(whole[-1]):
        line = whole[:-1] + " "
    return _BARS.sub(_EDGE, line)


def _may_be_header(line: str) -> bool:
    """Whether names of devices and columns are all that follows the first GPU; of the last word a piece is enough."""
    first = _LABEL.search(line)
    words = line[first.start() :].split() if first else []
    whole = [word for word in words if _HEADER_WORD.fullmatch(word) and not CELLS.fullmatch(word)]
    return bool(words) and (whole == words or (whole == words[:-1] and words[-1] in _HEADER_PARTS))


def _is_row(line: str) -> bool:
    """Whether a line begins with a device and a cell; that of a GPU may also be broken."""
    words = line.split(maxsplit=2)
    if len(words) < 2 or not _NAME.fullmatch(words[0]) or _is_part(words[0]) or CELLS.fullmatch(words[0]):
        return False
    is_cell = words[1] == "?" or CELLS.match(words[1]) is not None or PEER_STATUS.fullmatch(words[1]) is not None
    is_name = _HEADER_WORD.fullmatch(words[1]) is not None or words[1] in _HEADER_PARTS or words[1][0].islower()
    return is_cell or (_LABEL.fullmatch(words[0]) is not None and not is_name)


def _is_device(word: str) -> bool:
    return _NAME.fullmatch(word) is not None and not _is_part(word)


def _is_part(word: str) -> bool:
    return word in _PARTS or _PART.fullmatch(word) is not None


def _is_fragment(line: str) -> bool:
    """Whether a line can be the rest of a row: nothing but cells, lists and pieces of them."""
    return all(word == "?" or _is_part(word) or CELLS.fullmatch(word) for word in line.split())


def _is_blank(line: str) -> bool:
    """Whether a line says nothing: empty, or a rule of a table."""
    return not any(character.isalnum() or character in "?/" for character in line)


class _Prefix:
    """What a log or a mail puts before each line; digits in it may change from line to line."""

    def __init__(self, header: str, place: int) -> None:
        first = _LABEL.search(header)
        before = header[: first.start()].rstrip() if first else ""
        parts = (r"\d+" if part.isdecimal() else re.escape(part) for part in re.findall(r"\d+|[^\d\s]+", before))
        self._pattern = re.compile(r"\s*" + r"\s*".join(parts), re.ASCII)
        self.is_number = bool(before) and not before.strip(" \t0123456789:.)")
        self._first = place - _number(before)
        self.is_there = not _is_blank_run(before)

    def of(self, lines: Sequence[str], place: int) -> int:
        """Return how long it is in a line; a number that does not count the lines is a value."""
        found = self._pattern.match(lines[place]) if self.is_there else None
        if found is None or (self.is_number and place - _number(found[0]) != self._first):
            return 0
        return found.end()


def _number(text: str) -> int:
    digits = re.search(r"\d{1,9}", text, re.ASCII)
    return int(digits[0]) if digits else 0


def _is_blank_run(text: str) -> bool:
    return not text.strip()


def _block(lines: Sequence[str], at: int, is_header: Callable[[MatrixLine], bool]) -> MatrixBlock | None:
    """Collect the pieces of a header and of the rows below it, and join them."""
    prefix = _Prefix(lines[at], at)
    header = _header_pieces(lines, at, prefix)
    if len(header) > 1 and not _is_header_of(lines, header, prefix, is_header):
        header = [at]
    if len(header) == 1 and not is_header(MatrixLine(at + 1, _blanked(_without(lines, at, prefix)))):
        return None
    rows: list[list[int]] = []
    is_open, in_block, place = False, True, header[-1] + 1
    stray: int | None = None
    while place < len(lines):
        line = _without(lines, place, prefix)
        if _is_blank(line):
            is_open = False
        elif _LEGEND.match(line) or (rows and _may_be_header(line)):
            break
        elif _row_start(line) is not None:
            if stray is not None:
                raise SourceError(stray + 1, 1, "a line between two rows that is none: was the line before it wrapped?")
            rows.append([place])
            is_open = in_block = True
        elif in_block and _is_fragment(line):
            if not is_open:
                raise SourceError(place + 1, 1, "values without the device of their row: was the line wrapped?")
            rows[-1].append(place)
        elif not rows and _may_be_header(line):
            break
        else:
            if lost := _why_lost(line, is_open=is_open, has_rows=bool(rows)):
                raise SourceError(place + 1, 1, lost)
            stray = place if is_open else stray
            is_open = in_block = False
        place += 1
    joined = _join(lines, [header, *rows], prefix)
    return MatrixBlock(joined[0], tuple(joined[1:]), max(place, at + 1))


def _begins_with_value(line: str) -> bool:
    first = (line.lstrip("> \t:]).-|").split() or [""])[0]
    return _is_part(first) or CELLS.fullmatch(first) is not None


def _why_lost(line: str, *, is_open: bool, has_rows: bool) -> str | None:
    """Say which part of a matrix a line is that belongs to nothing; `None` if it is prose."""
    words = line.replace("|", " ").split()
    cells = sum(1 for word in words if CELLS.fullmatch(word))
    if (cells > 1 and 2 * cells >= len(words)) or (is_open and _begins_with_value(line)):
        return "cells or values without the device of their row"
    if not has_rows and all(word in _HEADER_PARTS for word in words):
        return "names of columns without the header that they belong to"
    return None


def _is_header_of(
    lines: Sequence[str], pieces: Sequence[int], prefix: _Prefix, is_header: Callable[[MatrixLine], bool]
) -> bool:
    parts = [lines[pieces[0]].rstrip(), *(lines[place][prefix.of(lines, place) :].strip() for place in pieces[1:])]
    try:
        return is_header(MatrixLine(pieces[0] + 1, _blanked("".join(parts))))
    except SourceError:
        return False


def _header_pieces(lines: Sequence[str], at: int, prefix: _Prefix) -> list[int]:
    """Return where a header stands that something may have wrapped: everything up to the first row, if that is near."""
    pieces = [at]
    for place in range(at + 1, min(at + _MAX_PIECES, len(lines))):
        line = _without(lines, place, prefix)
        if _row_start(line) is not None:
            return pieces
        if not line.strip() or _LEGEND.match(line):
            break
        if not _is_blank(line):
            pieces.append(place)
    return [at]


def _row_start(line: str) -> int | None:
    """Return where the device of a row stands, `None` if this is no row.

    Another program's prefix may stand before it.
    """
    if _is_row(line):
        return len(line) - len(line.lstrip())
    for label in _LABEL.finditer(line):
        if _is_row(line[label.start() :]):
            return label.start()
    return None


def _without(lines: Sequence[str], place: int, prefix: _Prefix) -> str:
    length = prefix.of(lines, place)
    return " " * length + lines[place][length:]


def _join(lines: Sequence[str], groups: Sequence[Sequence[int]], prefix: _Prefix) -> list[MatrixLine]:
    """Join the pieces of each line at the width at which they were wrapped."""
    if all(len(group) == 1 for group in groups):
        return [MatrixLine(group[0] + 1, _blanked(_without(lines, group[0], prefix))) for group in groups]
    pieces = _pieces(lines, groups, prefix)
    cut = [piece for group in pieces for piece in group[:-1]]
    if len({len(piece) for piece in cut}) > 1:
        pieces = [[piece.expandtabs() for piece in group] for group in pieces]
        cut = [piece for group in pieces for piece in group[:-1]]
    width = max(map(len, cut))
    seams = [
        _Seam(group[part] + 1, left, right, is_header=not row)
        for row, (group, texts) in enumerate(zip(groups, pieces, strict=True))
        for part, (left, right) in enumerate(pairwise(texts), start=1)
    ]
    ends_blank = {len(piece) for piece in cut if piece[-1].isspace()}
    splits = any(seam.splits_a_word for seam in seams if len(seam.left) == width)
    is_certain = ends_blank == {width} or (splits and ends_blank <= {width})
    too_long = next(
        (
            group[at]
            for group, texts in zip(groups, pieces, strict=True)
            for at, text in enumerate(texts)
            if len(text) > width
        ),
        None,
    )
    for seam in seams:
        is_full = len(seam.left) == width
        if (seam.splits_a_word and (not is_full or too_long is not None)) or (
            is_full and seam.is_ambiguous and not (is_certain and too_long is None)
        ):
            raise SourceError(seam.line, 1, f"the line before was wrapped, and may end with {seam.words}")
    return [
        MatrixLine(group[0] + 1, _blanked(_at_width(texts, width, is_header=not row)), is_certain)
        for row, (group, texts) in enumerate(zip(groups, pieces, strict=True))
    ]


def _at_width(texts: Sequence[str], width: int, *, is_header: bool) -> str:
    """Join the pieces of a line, with a blank between two values that are not one."""
    joined = texts[0]
    for left, right in pairwise(texts):
        joined += " " * (width - len(left)) + " " * _Seam(0, left, right, is_header).parts_values + right
    return joined


def _pieces(lines: Sequence[str], groups: Sequence[Sequence[int]], prefix: _Prefix) -> list[list[str]]:
    """Return all pieces without the prefix that each of them has, or with blanks for one that only the first have."""
    rest = [place for group in groups for place in group[1:]]
    has = [place for place in rest if prefix.of(lines, place)]
    if has and (len(has) < len(rest) or prefix.is_number):
        raise SourceError(has[0] + 1, 1, "a wrapped line, and a prefix that cannot be told from its values")
    if not has:
        return [[_without(lines, place, prefix) for place in group] for group in groups]
    starts = [lines[group[0]][prefix.of(lines, group[0]) :] for group in groups[1:]]
    indent = min((len(start) - len(start.lstrip(" ")) for start in starts), default=0)
    return [[_cut(lines[place], prefix.of(lines, place), indent) for place in group] for group in groups]


def _cut(line: str, length: int, indent: int) -> str:
    rest = line[length:]
    return rest[min(indent, len(rest) - len(rest.lstrip(" "))) :]


def _blanked(text: str) -> str:
    return text.replace(_EDGE, "\t")


@dataclass(frozen=True, slots=True)
class _Seam:
    """The place between two pieces of a line."""

    line: int
    """Of the second piece."""
    left: str
    right: str
    is_header: bool

    @property
    def words(self) -> str:
        """Say what meets here."""
        one, other = self._ends
        return f"{one[-32:]} or {one[-32:]}{other[:32]}"

    @property
    def _ends(self) -> tuple[str, str]:
        """Return the words that touch; empty where a blank is between them."""
        left = "" if self.left[-1:].isspace() else (self.left.split() or [""])[-1]
        right = "" if self.right[:1].isspace() else (self.right.split() or [""])[0]
        return (left, right) if left and right else ("", "")

    @property
    def splits_a_word(self) -> bool:
        """Whether one of both words can be nothing but a piece."""
        one, other = self._ends
        return bool(one) and not (self._is_whole(one) and self._is_whole(other))

    @property
    def is_ambiguous(self) -> bool:
        """Whether both words can be whole, and one word, too."""
        one, other = self._ends
        cells = CELLS.fullmatch(one) and CELLS.fullmatch(other)
        return bool(one) and not self.is_header and not cells and self._is_value(one + other) and not self.splits_a_word

    def _is_whole(self, word: str) -> bool:
        if self.is_header:
            return _HEADER_WORD.fullmatch(word) is not None
        return self._is_value(word) or _is_device(word)

    @property
    def parts_values(self) -> bool:
        """Whether both words are whole, and no one word."""
        one, other = self._ends
        return bool(one) and not self.is_header and not self.splits_a_word and not self._is_value(one + other)

    @staticmethod
    def _is_value(word: str) -> bool:
        is_list = NUMBERS.fullmatch(word) is not None and is_ascending(word)
        return is_list or word in {"N/A", "?"} or CELLS.fullmatch(word) is not None
