"""What an agent keeps over restarts, as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agent.health.links import LinkRecord
from agent.health.record import GpuRecord

MAX_SECONDS: Final = 1e11
"""Since the epoch: in the year 5138, so that what is added to a time is still one that a calendar has."""


class UnreadableMemory(ValueError):
    """What was kept is not what an agent writes."""


class HealthMemory(msgspec.Struct, frozen=True):
    """All of it."""

    gpus: dict[str, GpuRecord] = {}
    boot: str = ""
    """Under which boot of the machine it was kept."""
    links: dict[str, dict[int, LinkRecord]] = {}
    """Those in trouble, by GPU and NVML's number."""
    zero: float | None = None
    """What the wall clock said when the monotonic clock of this boot was at zero, in seconds since the epoch."""
    v: int = 1


def encode_memory(memory: HealthMemory) -> bytes:
    """Return it as text."""
    return msgspec.json.encode(memory)


def decode_memory(text: bytes) -> HealthMemory:
    """Return what `encode_memory` was given; raises `UnreadableMemory`."""
    try:
        kept = msgspec.json.decode(text, type=HealthMemory)
        is_bounded = all(abs(seconds) < MAX_SECONDS for seconds in _times(msgspec.to_builtins(kept)))
    except (ValueError, RecursionError) as error:  # of UTF-8 and of JSON
        raise UnreadableMemory(str(error)) from error
    if not is_bounded:
        raise UnreadableMemory("a time that no agent writes")
    if kept.v != 1:
        raise UnreadableMemory(f"version {kept.v} is none that this agent reads")
    return kept


def _times(part: Any) -> Iterator[float]:
    """Yield all fractional numbers in a document, which are times; counters of the driver are whole, and may be larger."""
    if isinstance(part, dict):
        yield from _times(list(part.values()))
    elif isinstance(part, list | tuple):
        for value in part:
            yield from _times(value)
    elif isinstance(part, float):
        yield part
