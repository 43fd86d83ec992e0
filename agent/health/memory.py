"""What an agent keeps over restarts, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent.health.record import GpuRecord


class UnreadableMemory(ValueError):
    """What was kept is not what an agent writes."""


class _Memory(msgspec.Struct):
    gpus: dict[str, GpuRecord]
    boot: str = ""
    v: int = 1


def encode_memory(records: Mapping[str, GpuRecord], boot: str) -> bytes:
    """Return the records, and under which boot of the machine they were kept."""
    return msgspec.json.encode(_Memory(dict(records), boot))


def decode_memory(text: bytes) -> tuple[dict[str, GpuRecord], str]:
    """Return what `encode_memory` was given; raises `UnreadableMemory`."""
    try:
        kept = msgspec.json.decode(text, type=_Memory)
    except msgspec.MsgspecError as error:
        raise UnreadableMemory(str(error)) from error
    if kept.v != 1:
        raise UnreadableMemory(f"version {kept.v} is none that this agent reads")
    return kept.gpus, kept.boot
