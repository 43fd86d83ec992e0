"""What the extender, and the plugin for kubectl, import at each start."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import agent.plain_structlog
import extender.plain_structlog


@pytest.mark.parametrize("program", ["extender.command, extender.web.server", "extender.cli"])
def test_no_start_imports_rich(program: str) -> None:
    """Structlog would, wherever it is installed, and it is: typer requires it."""
    asked = f"import sys, {program}; print(*{{'rich', 'structlog'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["structlog"]


def test_agent_has_the_same_structlog() -> None:
    """They share no code that is not pure, so the file is there twice."""
    assert inspect.getsource(agent.plain_structlog) == inspect.getsource(extender.plain_structlog)
