"""`make profile`: each look belongs to one part of the extender."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.performance.profiling import by_function, by_part

STACKS = [
    "run (asyncio/runners.py:118);__call__ (uvicorn/protocols/http.py:3);_filter (extender/web/routes.py:128) 3",
    "run (asyncio/runners.py:118);_filter (extender/web/routes.py:130);fits (topology/placement/plan.py:9);any (x.py:1) 2",
    "run (asyncio/runners.py:118);bind (extender/binding/bind.py:1);request (aiohttp/client.py:5) 4",
    "run (asyncio/runners.py:118);bind (extender/binding/bind.py:2) 1",
]


def test_a_look_belongs_to_the_innermost_part() -> None:
    """Whatever a part calls that is nobody's counts as its own; what another part does for it is the other's."""
    assert by_part(STACKS) == {
        "web": 3,
        "appraising": 2,
        "requests to the API server": 4,
        "bind: the protocol": 1,
    }


def test_functions_are_counted_over_all_their_lines() -> None:
    """The last frame is the function itself."""
    lines = ["a (x.py:1);b (y.py:1) 2", "b (y.py:7) 3"]
    assert by_function(lines) == {"b (y.py)": 5}


@pytest.mark.slow
def test_a_running_extender_is_looked_at() -> None:
    """The parts add up to the whole of a pod's CPU; who may not look is told so."""
    command = [sys.executable, "-m", "benchmarks.performance.profiling", "--nodes", "300", "--pods", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2 and "py-spy" in done.stderr:
        pytest.skip(done.stderr)
    first, *lines = done.stdout.splitlines()
    whole = float(first.split(" pods: ")[1].split(" ms")[0])
    parts = lines[: lines.index("functions themselves:")]
    assert {"web", "requests to the API server"} <= {line[:32].strip() for line in parts}
    assert sum(float(line.split()[-2]) for line in parts) == pytest.approx(whole, rel=0.02)
