"""When Python looks for garbage."""

from __future__ import annotations

import subprocess
import sys

START = """
import gc, sys
from extender.__main__ import main
gc.collect()
before = sum(each["collections"] for each in gc.get_stats())
sys.argv = ["gputopo-extender", "--version"]
try:
    main()
except SystemExit:
    print("extender.web.command" in sys.modules, sum(each["collections"] for each in gc.get_stats()) - before)
"""


def test_what_a_start_imports_is_not_looked_through() -> None:
    """It stays; hundreds of looks through it were a sixth of the time."""
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True 0"
