"""What is read of each GPU for whoever watches it, beside what the node publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.gpus.facts import GpuFacts
from agent.health.record import State


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at the last look."""

    uuid: str
    index: int
    state: State
    xids: Mapping[int, int]
    """Critical errors since this agent began: number → how often."""
    facts: GpuFacts
