"""What the extender, and the plugin for kubectl, import at each start, and what the core names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXTENDER = Path(__file__).parents[2] / "extender"
ABOVE_FEATURES = {"features", "kubectl", "web"}


@pytest.mark.slow
def test_no_start_imports_rich() -> None:
    """Structlog would, wherever it is installed, and it is: typer requires it."""
    asked = "print(*{'rich', 'structlog'} & {*sys.modules})"
    script = f"import sys, extender.kubectl.cli; {asked}; import extender.web.command, extender.web.server; {asked}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["structlog", "structlog"]


@pytest.mark.slow
def test_the_agent_imports_nothing_of_the_extender_but_its_kit() -> None:
    """A node needs none of what decides, and each module costs memory on every node."""
    script = "import sys, agent, compile_imports as c; c.PACKAGES, c.BESIDE = ['agent'], []; c.import_all(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = {name for name in done.stdout.split() if name.startswith("extender.")}
    assert "extender.kit.visits" in modules
    assert {name for name in modules if not name.startswith("extender.kit")} == set()


def test_the_core_names_no_feature() -> None:
    """Not in a docstring either: a feature goes with its folder."""
    core = [path for path in EXTENDER.rglob("*.py") if path.relative_to(EXTENDER).parts[0] not in ABOVE_FEATURES]
    assert len(core) > 100
    assert [str(path) for path in core if "extender.features" in path.read_text()] == []
