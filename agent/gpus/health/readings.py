"""What is read of each GPU for whoever watches it, beside what the node publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.gpus.facts import GpuFacts
from agent.health.record import State


@dataclass(frozen=True, slots=True)
class XidCount:
    """How often a critical error was told, and when last."""

    count: int
    last: float


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at the last look."""

    uuid: str
    index: int
    state: State
    xids: Mapping[int, XidCount]
    """Critical errors since this agent began, by number."""
    facts: GpuFacts
    at: float = 0.0
    """When the look was, in seconds since the epoch."""
