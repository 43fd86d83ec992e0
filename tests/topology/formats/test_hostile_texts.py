"""Matrices and XML are files from anywhere: any text is read, or refused with its place, and nothing else ever happens."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topology.errors import SourceError
from topology.formats.catalog import MACHINES, machine
from topology.formats.matrix import parse_matrix, print_matrix
from topology.formats.nccl_xml import parse_nccl_xml
from topology.node.model import NodeTopology

CELLS = ["X", "NV1", "NV999", "NV0", "PIX", "SOC", "N/A", "0-3", "0,5-11", "\u0663", "\x1b[4m"]
LABELS = ["GPU0", "GPU1", "GPU01", "GPU9999", "NIC0", "mlx5_0", "GPU0GPU1", "Legend:", "NIC0:"]
WORDS = st.sampled_from([*CELLS, *LABELS, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "9" * 50])
TEXTS = st.lists(WORDS | st.sampled_from(["\t", " ", "\n", "\n"]), max_size=60).map(" ".join)


def read_or_refuse(parse: Callable[[str], NodeTopology], text: str) -> NodeTopology | None:
    try:
        return parse(text)
    except SourceError as error:
        lines = text.count("\n") + text.count("\r") + 1  # for XML a lone carriage return ends a line, too
        if not 0 <= error.line <= lines or error.column < 0:
            raise AssertionError(f"a place outside of the text: {error}") from error
        return None


@pytest.mark.slow
@given(st.text() | TEXTS)
@example("GPU0\nGPU0 X\n")
def test_any_text_is_a_matrix_or_refused(text: str) -> None:
    """What is read can be printed and read again."""
    node = read_or_refuse(parse_matrix, text)
    if node is not None:
        assert parse_matrix(print_matrix(node)).matrix == node.matrix


@given(st.text() | st.text().map("<system>{}</system>".format))
def test_any_text_is_xml_or_refused(text: str) -> None:
    """Nothing but `SourceError` comes out."""
    assert read_or_refuse(parse_nccl_xml, text) is None


@pytest.mark.slow
def test_two_thousand_damaged_matrices() -> None:
    """Real ones with words lost, doubled and swapped: never a crash, and never a cell that nobody wrote."""
    chance = random.Random(20_260_102)
    texts = [print_matrix(machine(name)) for name in MACHINES]
    read = 0
    for _ in range(2_000):
        words = chance.choice(texts).split("\t")
        for _ in range(chance.randint(1, 6)):
            at, other = chance.randrange(len(words)), chance.randrange(len(words))
            words[at : at + chance.randint(0, 2)] = [words[other]] * chance.randint(0, 2)
        text = "\t".join(words)
        node = read_or_refuse(parse_matrix, text)
        if node is not None:
            read += 1
            assert all(f"NV{link.nvlinks}" in text for link in node.links if link.nvlinks)
    assert 0 < read < 2_000
