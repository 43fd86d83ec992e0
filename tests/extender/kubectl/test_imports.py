"""What `kubectl gputopo` imports is most of the time that it takes to start."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_plugin_starts_without_the_configuration_of_the_extender() -> None:
    """It is 20 models of pydantic, and none of them counts outside of the extender."""
    program = "import sys, extender.kubectl.cli; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = {*answer.stdout.split()}
    assert "extender.cluster.state" in imported
    assert "extender.config.document" not in imported
