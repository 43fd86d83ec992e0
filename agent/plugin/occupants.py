"""Whether anybody still computes on GPUs that a container is about to get, as far as NVML can tell.

A pod that is gone can leave a process behind. What NVML does not tell proves nothing, and keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agent.gpus.facts import Answer, GpuProcess, value_of

_NAMED = 4
"""Of the processes on one GPU; a message is for people."""


def occupants(processes: Mapping[str, Answer[tuple[GpuProcess, ...]]], ignored: Collection[str]) -> str | None:
    """Return who computes on these GPUs, in words, or `None`; `ignored` are programs that may."""
    running_on = {
        gpu: [process for process in value_of(processes[gpu]) or () if not process.is_one_of(ignored)]
        for gpu in sorted(processes)
    }
    return (
        "; ".join(f"{gpu} is still in use by {_named(running)}" for gpu, running in running_on.items() if running)
        or None
    )


def _named(running: Sequence[GpuProcess]) -> str:
    names = [
        f"process {process.pid}" + (f" ({process.command})" if process.command else "") for process in running[:_NAMED]
    ]
    more = len(running) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
