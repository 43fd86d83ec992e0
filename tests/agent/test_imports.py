"""What the agent imports is most of what it keeps in memory, on every node."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCORERS = """
from agent.plugin.choice.lazy_scorer import LazyScorer
from topology.formats.catalog import machine
alike, unlike = (LazyScorer(machine(name), lambda _: None) for name in ("hgx-h100", "dgx-1v"))
gpus, others = ([gpu.uuid for gpu in machine(name).gpus] for name in ("hgx-h100", "dgx-1v"))
"""


def imported(*steps: str) -> list[set[str]]:
    """Return which of the big libraries a new process of the agent has imported at first, and after each step."""
    asked = "print('libraries', *{'networkx', 'rich'} & {*sys.modules})"
    start = "import sys, agent.__main__, agent.serve"
    command = [sys.executable, "-c", "\n".join((start, asked, *(line for step in steps for line in (step, asked))))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [{*line.split()[1:]} for line in printed.splitlines()]


@pytest.mark.slow
def test_agent_imports_big_libraries_when_it_needs_them() -> None:
    """Neither networkx, on which predictions are made, nor rich, which structlog imports wherever it is installed.

    Planned pods need no predictions: neither those of up to three GPUs, nor those whose GPUs are on one NVSwitch. A choice
    among free GPUs does. Rich is kept from structlog alone.
    """
    planned = (_SCORERS, "alike.ring(gpus)", "unlike.ring(others[2:5])")
    after = imported(*planned, "alike.best(gpus, [], 2)", "import rich.console")
    assert after == [set()] * 4 + [{"networkx"}, {"networkx", "rich"}]


@pytest.mark.slow
def test_a_ring_on_unlike_wires_brings_networkx() -> None:
    """That is another way to it than a choice."""
    assert imported(_SCORERS, "unlike.ring(others)") == [set(), set(), {"networkx"}]
