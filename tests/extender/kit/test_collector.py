"""When Python looks for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from extender.kit.collector import FreezeAfterLong

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


@pytest.fixture
def thawed() -> Iterator[None]:
    """Begin with nothing frozen, and leave nothing frozen."""
    gc.unfreeze()
    before = [*gc.callbacks]
    yield
    gc.callbacks[:] = before
    gc.unfreeze()


@pytest.mark.slow
def test_what_a_start_imports_is_not_looked_through() -> None:
    """It stays; hundreds of looks through it were a sixth of the time."""
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True 0"


@pytest.mark.slow
@pytest.mark.parametrize(("long_seconds", "is_frozen"), [(0.0, True), (60.0, False)])
def test_what_survives_a_long_look_is_not_looked_at_again(thawed: None, long_seconds: float, is_frozen: bool) -> None:
    """After events have replaced the objects of a large cluster, a look through all would stop everybody again and again."""
    gc.callbacks.append(FreezeAfterLong(long_seconds))
    gc.collect(1)
    assert not gc.get_freeze_count()
    gc.collect()
    assert bool(gc.get_freeze_count()) == is_frozen
