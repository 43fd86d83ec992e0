"""`make profile`: where the CPU of a pod goes, by part of the extender.

The real extender gets filter, prioritize and bind for one pod after another, as from `gputopo-bench latency`. py-spy
samples its stacks from outside 250 times a second. py-spy counts a sample only where a thread computes, and the kernel
says how much it computed in all. So the parts are milliseconds of CPU. It has to be allowed to read the process: `root`,
or ptrace_scope 0. A look belongs to the innermost part on the stack.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import aiohttp

from benchmarks.performance.machine import describe_machine
from benchmarks.performance.verbs import (
    BIND,
    FILTER,
    PRIORITIZE,
    Fleet,
    about,
    ask,
    binding,
    create,
    running_fleet,
)
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.fleet import POD_SIZES, check_capacity, gpu_pod, mixed_fleet

LOOKS_PER_SECOND = 250
_WARM_UP = 30
_SHOWN = 12
_PARTS = (
    ("extender/verbs/", "filter, prioritize: the verbs"),
    ("extender/planning/", "steering"),
    ("extender/features/steering/", "steering"),
    ("extender/binding/", "bind: the protocol"),
    ("extender/kubernetes/events", "events about pods"),
    ("extender/kubernetes/reflector", "watch: what others wrote"),
    ("extender/kubernetes/watching", "watch: what others wrote"),
    ("extender/core/watches", "watch: what others wrote"),
    ("extender/kubernetes/", "requests to the API server"),
    ("aiohttp/", "requests to the API server"),
    ("yarl/", "requests to the API server"),
    ("multidict/", "requests to the API server"),
    ("kubernetes/", "requests to the API server"),
    ("extender/cluster/candidates/values", "appraising"),
    ("extender/cluster/", "what is known of the cluster"),
    ("topology/annotations/", "annotations read and written"),
    ("topology/", "appraising"),
    ("extender/features/quality/", "metrics, logs"),
    ("extender/telemetry/", "metrics, logs"),
    ("extender/kit/logs", "metrics, logs"),
    ("extender/inspect/", "metrics, logs"),
    ("prometheus_client/", "metrics, logs"),
    ("structlog/", "metrics, logs"),
    ("logging/", "metrics, logs"),
    ("extender/web/", "web"),
    ("uvicorn/", "web"),
    ("starlette/", "web"),
    ("fastapi/", "web"),
    ("extender/", "upkeep, and the rest"),
    ("asyncio/", "event loop"),
)
"""How a file begins → the part it is of; the first that fits. Other files are of the part that called them."""


class NoProfile(Exception):
    """py-spy saw nothing; the text is what it said."""


def part_of(stack: str) -> str:
    """Return the innermost part on a stack, as py-spy writes it: `outer (file:line);…;inner (file:line)`.

    >>> part_of("run (uvloop/loop.pyx:1);answer (extender/web/routes.py:70);fits (topology/placement/plan.py:9);sum (x.py:1)")
    'appraising'
    """
    for frame in reversed(stack.split(";")):
        file = frame.rpartition(" (")[2]
        for beginning, part in _PARTS:
            if file.startswith(beginning):
                return part
    return "event loop"


def by_part(lines: Iterable[str]) -> Counter[str]:
    """Return how many looks there were at each part."""
    counted: Counter[str] = Counter()
    for line in lines:
        stack, _, looks = line.rpartition(" ")
        counted[part_of(stack)] += int(looks)
    return counted


def by_function(lines: Iterable[str]) -> Counter[str]:
    """Return how many looks there were at each function itself; whatever it calls in C counts as its own."""
    counted: Counter[str] = Counter()
    for line in lines:
        stack, _, looks = line.rpartition(" ")
        counted[stack.rpartition(";")[2].rpartition(":")[0] + ")"] += int(looks)
    return counted


async def _measure(folder: Path, nodes: int, pods: int) -> tuple[list[str], float]:
    """Return stacks with counts, and the CPU of one pod in milliseconds."""
    simulated = mixed_fleet(nodes)
    names = [node.name for node in simulated]
    async with running_fleet(folder, simulated) as fleet, aiohttp.ClientSession() as session:
        for number in range(_WARM_UP):
            await _one_pod(fleet, session, names, number)
        process, file = fleet.extender.process, folder / "stacks"
        command = ["--pid", process.pid, "--format", "raw", "--rate", LOOKS_PER_SECOND, "--output", file]
        looking = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("py-spy"),
            "record",
            *map(str, command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        before = process.main_thread_cpu_ms()
        for number in range(_WARM_UP, _WARM_UP + pods):
            await _one_pod(fleet, session, names, number)
        cpu_ms = (process.main_thread_cpu_ms() - before) / pods
        if looking.returncode is None:
            looking.send_signal(signal.SIGINT)
        said, _ = await looking.communicate()
    if not file.exists():
        raise NoProfile(f"py-spy: {said.decode(errors='replace').strip()}")
    return file.read_text().splitlines(), cpu_ms


async def _one_pod(fleet: Fleet, session: aiohttp.ClientSession, names: list[str], number: int) -> None:
    spec = gpu_pod(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], schedulerName="gputopo")
    pod = await create(fleet.api, spec)
    fitting, _ = await ask(session, fleet.extender, FILTER, about(pod, names))
    scores, _ = await ask(session, fleet.extender, PRIORITIZE, about(pod, fitting["NodeNames"]))
    best = max(scores, key=lambda entry: entry["Score"])["Host"]
    await ask(session, fleet.extender, BIND, binding(pod, best))


def main() -> None:
    """Print the parts of a pod's CPU; exit 2 where py-spy may not look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument(
        "--stacks", type=Path, help="Keep the stacks in this file; speedscope.app and flamegraph.pl draw them."
    )
    asked = parser.parse_args()
    check_capacity(asked.nodes, _WARM_UP + asked.pods)
    end_in_order_on_signals()
    load = describe_machine()["load"]
    with tempfile.TemporaryDirectory(prefix="gputopo-profile-") as folder:
        try:
            stacks, cpu_ms = asyncio.run(_measure(Path(folder), asked.nodes, asked.pods))
        except NoProfile as wrong:
            print(wrong, file=sys.stderr)
            sys.exit(2)
    if asked.stacks:
        asked.stacks.write_text("\n".join(stacks) + "\n")
    parts = by_part(stacks)
    looks = parts.total()
    print(f"{asked.nodes:,} nodes, {asked.pods:,} pods: {cpu_ms:.2f} ms of CPU a pod; {looks:,} looks, load {load}")
    for part, count in parts.most_common():
        print(f"{part:<32}{100 * count / looks:6.1f} %{cpu_ms * count / looks:8.3f} ms")
    print("functions themselves:")
    for function, count in by_function(stacks).most_common(_SHOWN):
        print(f"{100 * count / looks:6.1f} %  {function}")


if __name__ == "__main__":
    main()
