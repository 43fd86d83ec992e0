"""What the agent imports is most of what it keeps in memory, on every node."""

from __future__ import annotations

import subprocess
import sys

_NODE = """
from agent.plugin.choice.lazy_scorer import LazyScorer
from topology.formats.catalog import machine
node = machine("hgx-h100")
scorer = LazyScorer(node, lambda _: None)
gpus = [gpu.uuid for gpu in node.gpus]
"""


def imported(*statements: str) -> set[str]:
    """Return which of the big libraries a new process has imported after these statements."""
    asked = "import sys; print(*{'networkx', 'rich'} & {*sys.modules})"
    command = [sys.executable, "-c", "\n".join(("import agent.__main__, agent.serve", *statements, asked))]
    return {*subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def test_agent_starts_without_big_libraries() -> None:
    """Neither networkx, on which predictions are made, nor rich, which structlog imports wherever it is installed."""
    assert imported() == set()


def test_planned_pods_need_no_predictions() -> None:
    """Neither those of up to three GPUs, nor those whose GPUs are on one NVSwitch."""
    assert imported(_NODE, "scorer.ring(gpus)") == set()
    assert imported(_NODE.replace("hgx-h100", "dgx-1v"), "scorer.ring(gpus[2:5])") == set()


def test_first_prediction_brings_networkx() -> None:
    """A choice among free GPUs, or the ring of more GPUs on unlike wires."""
    assert imported(_NODE, "scorer.best(gpus, [], 2)") == {"networkx"}
    assert imported(_NODE.replace("hgx-h100", "dgx-1v"), "scorer.ring(gpus)") == {"networkx"}


def test_rich_can_still_be_imported_afterwards() -> None:
    """It is kept from structlog alone."""
    assert imported("import rich.console") == {"rich"}
