"""A matrix that something wrapped, framed or prefixed is the same matrix, or is refused with its line; never another one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from topology.errors import SourceError
from topology.formats.catalog import MACHINES, machine
from topology.formats.matrix import parse_matrix, print_matrix
from topology.node.model import NodeTopology

Variant = Callable[[str], str]

WIDTHS = range(40, 201)


def plain(text: str) -> str:
    """Return what a terminal shows: no tabs."""
    return "\n".join(line.expandtabs() for line in text.splitlines())


def wrapped(text: str, width: int) -> Iterator[str]:
    """Give the lines that a terminal of a width shows."""
    for line in text.splitlines():
        yield from (line[at : at + width] for at in range(0, max(len(line), 1), width))


def at_width(width: int) -> Variant:
    return lambda text: "\n".join(wrapped(plain(text), width))


def trimmed_at_width(width: int) -> Variant:
    return lambda text: "\n".join(line.rstrip() for line in wrapped(plain(text), width))


def tabs_at_width(width: int) -> Variant:
    return lambda text: "\n".join(wrapped(text, width))


def quoted_at_width(width: int) -> Variant:
    return lambda text: "\n".join(f"> {line}" for line in wrapped(plain(text), width))


def logged_at_width(width: int) -> Variant:
    return lambda text: "\n".join(wrapped("\n".join(f"INFO: {line}" for line in plain(text).splitlines()), width))


def filled_at_width(width: int) -> Variant:
    """As a mail program wraps, between words."""
    return lambda text: "\n".join(
        part for line in plain(text).splitlines() for part in textwrap.wrap(line, width, drop_whitespace=True) or [""]
    )


WRAPPERS = [at_width, trimmed_at_width, tabs_at_width, quoted_at_width, logged_at_width, filled_at_width]


original_of = lru_cache(maxsize=128)(parse_matrix)
"""Each matrix is read once, and each of its variants."""


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of the matrix in a text, its header first, with the name of each column in one cell."""
    lines = [line.split("\t") for line in print_matrix(original_of(text), legend=False).splitlines()]
    rows = [[cell.strip() for cell in line] for line in lines]
    width = len(rows[0])
    return [[*row[: width - 1], row[-1]] if len(row) > width else [*row, *[""] * (width - len(row))] for row in rows]


def markdown(text: str) -> str:
    rows = rows_of(text)
    rule = ["---"] * len(rows[0])
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def markdown_without_edges(text: str) -> str:
    rows = rows_of(text)
    return "\n".join(" | ".join(row) for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def bold_markdown(text: str) -> str:
    return re.sub(r"\| (GPU\d+) \|", r"| **\1** |", markdown(text))


def grid(text: str) -> str:
    """Write a grid table of reStructuredText."""
    rows = rows_of(text)
    widths = [max(len(row[column]) for row in rows) + 2 for column in range(len(rows[0]))]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    lines = [
        "|" + "|".join(f" {cell}".ljust(width) for cell, width in zip(row, widths, strict=True)) + "|" for row in rows
    ]
    body = "\n".join(f"{line}\n{rule}" for line in lines[1:])
    return f"{rule}\n{lines[0]}\n{rule.replace('-', '=')}\n{body}"


def box(text: str) -> str:
    lines = grid(text).replace("|", "\u2502").splitlines()
    ruled = str.maketrans("+-=", "\u253c\u2500\u2550")
    return "\n".join(line.translate(ruled) if line.startswith("+") else line for line in lines)


def simple(text: str) -> str:
    """Write a simple table of reStructuredText."""
    lines = plain(text).splitlines()
    head = next(at for at, line in enumerate(lines) if re.match(r"\s*GPU0\s*(GPU|NIC|mlx|CPU|$)", line))
    rule = " ".join(["====="] * 12)
    return "\n".join([*lines[:head], rule, lines[head], rule, *lines[head + 1 :]])


def prefixed(prefix: str) -> Variant:
    return lambda text: "\n".join(f"{prefix}{line}" for line in text.splitlines())


def timed(text: str) -> str:
    return "\n".join(
        f"2026-11-27T10:00:{number % 60:02d}.{number * 37 % 1000}Z node-7 INFO {line}"
        for number, line in enumerate(text.splitlines())
    )


def numbered(text: str) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(text.splitlines(), start=1))


def with_notes(text: str) -> str:
    return re.sub(r"^(GPU0\s+X\b.*)$", r"\1   <- the first, 12 links", text, flags=re.MULTILINE)


PEERS = """\
$ nvidia-smi topo -p2p r
 \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tOK\tX\t

Legend:

  X    = Self
  OK   = Status Ok

"""

VARIANTS: dict[str, Variant] = {
    "markdown": markdown,
    "markdown without edges": markdown_without_edges,
    "bold markdown": bold_markdown,
    "RST grid": grid,
    "box": box,
    "RST simple table": simple,
    "quoted": prefixed("> "),
    "quoted thrice": prefixed(">>> "),
    "bar": prefixed("| "),
    "comment": prefixed("# "),
    "block comment": prefixed(" * "),
    "INFO": prefixed("INFO:"),
    "MPI": prefixed("[1,0]<stdout>:"),
    "rank": prefixed("(worker0 pid=77) "),
    "times": timed,
    "numbers": numbered,
    "DOS": lambda text: text.replace("\n", "\r\n"),
    "BOM": lambda text: "\ufeff" + text,
    "blanks": plain,
    "hard spaces": lambda text: plain(text).replace(" ", "\u00a0"),
    "indented": prefixed("      "),
    "fenced": lambda text: f"Hello:\n```\n{text}\n```\n",
    "after peer access": lambda text: PEERS + text,
    "notes": with_notes,
}


def texts(shared: Path) -> dict[str, str]:
    files = [*shared.glob("topologies/*.topo.txt"), *shared.glob("bandwidth/machines/*.topo.txt")]
    real = {path.name: path.read_text(encoding="utf-8") for path in sorted(files)}
    return real | {f"catalogue {name}": print_matrix(machine(name)) for name in MACHINES}


def bare(text: str) -> str:
    """Return a text without the comments that our collection puts above it."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")) + "\n"


def unnamed(node: NodeTopology) -> NodeTopology:
    """Return a node whose NICs have only their labels, as a table without a legend has them."""
    return parse_matrix(print_matrix(node, legend=False))


@lru_cache(maxsize=128)
def outcome(text: str) -> NodeTopology | SourceError:
    """Return the node that a text describes, or its refusal; many wrappers and widths leave a text the same."""
    try:
        return parse_matrix(text)
    except SourceError as refusal:
        return refusal


def differs(original: NodeTopology, text: str, *, without_legend: bool = False) -> str | None:
    """Say what is wrong with how a variant is read, if anything is."""
    node = outcome(text)
    if isinstance(node, SourceError):
        return None if node.line else f"refused without a line: {node.reason}"
    return None if (unnamed(node) if without_legend else node) == original else "another topology"


@pytest.mark.slow
def test_no_width_of_a_terminal_makes_it_another_machine(shared_dir: Path) -> None:
    """Lists, cells and names may be cut at any place; each text takes other widths."""
    wrong = []
    read = total = 0
    for offset, (name, text) in enumerate(texts(shared_dir).items()):
        original = parse_matrix(bare(text))
        for wrapper in WRAPPERS:
            for width in WIDTHS[offset % 13 :: 13]:
                variant = wrapper(width)(bare(text))
                if fault := differs(original, variant):
                    wrong.append((name, wrapper.__name__, width, fault))
                if wrapper is at_width:
                    total += 1
                    read += isinstance(outcome(variant), NodeTopology)
    assert wrong == []
    assert read > 0.95 * total


@pytest.mark.slow
@pytest.mark.parametrize("kind", VARIANTS)
def test_no_width_makes_a_framed_or_prefixed_matrix_another_machine(shared_dir: Path, kind: str) -> None:
    """Logs and tables are wrapped, too, by a terminal or between words."""
    wrong = []
    for offset, (name, text) in enumerate(texts(shared_dir).items()):
        framed = VARIANTS[kind](bare(text))
        original = unnamed(parse_matrix(framed))
        for wrapper in (at_width, filled_at_width):
            for width in WIDTHS[offset % 53 :: 53]:
                variant = wrapper(width)(framed)
                if fault := differs(original, variant, without_legend=True):
                    wrong.append((name, wrapper.__name__, width, fault))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", VARIANTS)
def test_no_frame_or_prefix_makes_it_another_machine(shared_dir: Path, kind: str) -> None:
    """All of these are read."""
    wrong = {}
    for name, text in texts(shared_dir).items():
        original = original_of(bare(text))
        legend = original.nics and any(nic.device for nic in original.nics)
        variant = VARIANTS[kind](bare(text))
        try:
            node = parse_matrix(variant)
        except SourceError as refusal:
            wrong[name] = str(refusal)
            continue
        if legend and kind in {"markdown", "markdown without edges", "bold markdown", "RST grid", "box"}:
            # A table has no legend.
            node, expected = unnamed(node), unnamed(original)
        else:
            expected = original
        if node != expected:
            wrong[name] = "another topology"
    assert wrong == {}


def refusal(text: str) -> tuple[int, str]:
    with pytest.raises(SourceError) as caught:
        parse_matrix(text)
    return caught.value.line, caught.value.reason


def warnings(text: str) -> list[tuple[int, str]]:
    said: list[tuple[int, str]] = []
    parse_matrix(text, warn=lambda line, what: said.append((line, what)))
    return said


PAIR = "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      NV4     0-31,64-95      0\n"


def test_cells_that_run_together_are_read_one_by_one() -> None:
    """A report glued two columns of every row."""
    node = parse_matrix("GPU0 GPU1 GPU2GPU3 CPU Affinity\nGPU0 X NV18 SYSSYS 0-47\nGPU3 SYSSYS NODEX0-47")
    assert [" ".join(row) for row in node.matrix] == [
        "X NV18 SYS SYS",
        "NV18 X ? SYS",
        "SYS ? X NODE",
        "SYS SYS NODE X",
    ]
    assert [gpu.cpu_affinity for gpu in node.gpus] == ["0-47", None, None, "0-47"]


def test_a_count_of_links_that_runs_into_a_list_is_not_guessed() -> None:
    """NV1 and 80-95, or NV18 and 0-95."""
    assert refusal("GPU0 GPU1 CPU Affinity\nGPU0 X NV180-95") == (2, "GPU0 to GPU1 reads NV180-95, which is no link")


def test_a_list_that_was_cut_is_refused() -> None:
    """The kernel's lists rise."""
    line, reason = refusal(PAIR.replace("0-31,64-95 ", "64-127,192-2"))
    assert (line, "64-127,192-2 is no list" in reason) == (2, True)


def test_a_header_that_was_cut_is_refused() -> None:
    """Its last column would be taken for another one."""
    assert refusal(PAIR.replace("NUMA Affinity", "NUMA Aff")) == (1, "'NUMA Aff' names no column: was the header cut?")


def test_a_line_that_may_end_in_two_ways_is_refused() -> None:
    """Nothing here shows whether the terminal was wider than the longest line, and the list ends with 95 or 950."""
    text = "GPU0 GPU1CPU Affinity\nNUMA Affinity\nGPU0 X NV4 0-31,64-95\n0\nGPU1 NV4 X 0-31\n0\n"
    line, reason = refusal(text)
    assert (line, reason) == (4, "the line before was wrapped, and may end with 0-31,64-95 or 0-31,64-950")


def test_values_without_their_row_are_refused() -> None:
    """They would be lost."""
    assert refusal(PAIR + "\n0-31 N/A\n") == (4, "values without the device of their row: was the line wrapped?")
    assert refusal("GPU0 GPU1\nGPU0 X NV4\nthe second NV4 X\n") == (
        3,
        "cells or values without the device of their row",
    )
    assert refusal(PAIR + "1 N/A <- first\n") == (3, "cells or values without the device of their row")
    names = refusal("GPU0 GPU1 CPU Affinity\n\nNUMA Affinity\n\nGPU0 X NV4 1\n")
    assert names == (3, "names of columns without the header that they belong to")


def test_a_line_between_rows_is_not_passed_over() -> None:
    """Behind two prefixes the rest of a row looks like prose."""
    line, reason = refusal("> a: GPU0 GPU1\n> a: GPU0 X NV4\n> b 0-3\n> a: GPU1 NV4 X\n")
    assert (line, reason) == (3, "a line between two rows that is none: was the line before it wrapped?")


def test_a_device_may_end_with_a_colon() -> None:
    """Lists are often written so."""
    assert parse_matrix("GPU0 GPU1\nGPU0: X NV4\nhost GPU1: NV4 X\n") == parse_matrix(
        "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n"
    )


def test_notes_after_the_cells_are_left_out_with_a_warning() -> None:
    """No number in them is a NUMA node."""
    text = "GPU0 GPU1\nGPU0 X NV12 <- NVLink, 12 links\nGPU1 NV12 X 12 links\n"
    assert warnings(text) == [
        (2, "'<- NVLink, 12 links' after the cells is left out"),
        (3, "'12 links' after the cells is left out"),
    ]
    assert [gpu.numa_node for gpu in parse_matrix(text).gpus] == [None, None]
    named = PAIR.replace("      0\n", "      0   # socket 7\n")
    assert warnings(named) == [(2, "'# socket 7' after the cells is left out")]
    assert parse_matrix(named).gpus[0].numa_node == 0


def test_more_values_than_columns_are_refused() -> None:
    """One of them would be lost."""
    assert refusal(PAIR.replace("      0\n", "      0   1\n")) == (2, "more values than the header has columns")


def test_another_matrix_is_left_out_with_a_warning_unless_it_says_the_same() -> None:
    """People paste two machines, or -mp behind -m."""
    assert warnings(PAIR + PAIR) == []
    assert warnings(PAIR + PAIR.replace("NV4", "SYS")) == [(3, "another matrix is left out")]
    assert warnings(PEERS + PAIR) == [(2, "a matrix of peer access (topo -p2p) is left out")]


def test_a_matrix_of_peer_access_alone_is_refused_by_name() -> None:
    """Its cells are no links."""
    assert refusal(PEERS)[0] == 3
    assert "this is a matrix of peer access (topo -p2p)" in refusal(PEERS)[1]


def test_a_text_without_a_header_is_refused_at_the_line_that_names_a_gpu() -> None:
    """The sentence that no line names GPUs would be false."""
    assert refusal("# machine\nGPU0, GPU1\n") == (
        2,
        "no matrix: this line names a GPU, but is no header (GPU0, GPU1, …)",
    )
