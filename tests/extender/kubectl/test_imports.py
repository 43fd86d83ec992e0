"""What `kubectl gputopo` imports is most of the time that it takes to start."""

from __future__ import annotations

import subprocess
import sys


def test_plugin_starts_without_the_settings_of_the_extender() -> None:
    """They are 20 models of pydantic, and none of them counts outside of the extender."""
    program = "import sys, extender.kubectl.cli; print(*(name for name in sys.modules if name.startswith('extender.config.')))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {*answer.stdout.split()} == {"extender.config.defaults", "extender.config.health_words"}
