"""What an agent keeps over restarts, as JSON."""

from __future__ import annotations

import msgspec

from agent.health.links import LinkRecord
from agent.health.record import GpuRecord


class UnreadableMemory(ValueError):
    """What was kept is not what an agent writes."""


class Memory(msgspec.Struct, frozen=True):
    """All of it."""

    gpus: dict[str, GpuRecord] = {}
    boot: str = ""
    """Under which boot of the machine it was kept."""
    links: dict[str, dict[int, LinkRecord]] = {}
    """Those in trouble, by GPU and NVML's number."""
    zero: float | None = None
    """What the wall clock said when the monotonic clock of this boot was at zero, in seconds since the epoch."""
    v: int = 1


def encode_memory(memory: Memory) -> bytes:
    """Return it as text."""
    return msgspec.json.encode(memory)


def decode_memory(text: bytes) -> Memory:
    """Return what `encode_memory` was given; raises `UnreadableMemory`."""
    try:
        kept = msgspec.json.decode(text, type=Memory)
    except msgspec.MsgspecError as error:
        raise UnreadableMemory(str(error)) from error
    if kept.v != 1:
        raise UnreadableMemory(f"version {kept.v} is none that this agent reads")
    return kept
