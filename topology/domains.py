"""What nodes have in common beyond their own wires, NVLink domains, racks and blocks, and what a group asks of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Level(StrEnum):
    """The kinds of domains, the nearest first."""

    NVLINK_DOMAIN = "nvlink-domain"
    RACK = "rack"
    BLOCK = "block"


Domain = tuple[Level | None, str]
"""A level and a name; a node whose domain nobody knows is one on its own, of no level."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where a node stands."""

    node: str
    known: tuple[tuple[Level, str], ...] = ()
    """Its domains, at most one of each level."""

    def domain(self, level: Level) -> Domain:
        """Return the node's domain of that level.

        >>> Location("n1", ((Level.RACK, "r7"),)).domain(Level.RACK)
        (<Level.RACK: 'rack'>, 'r7')
        """
        for domain in self.known:
            if domain[0] is level:
                return domain
        return None, self.node


@dataclass(frozen=True, slots=True)
class GroupWish:
    """What a pod says of its group."""

    name: str
    size: int | None = None
    """Pods altogether; `None`: as many as there are."""
    level: Level = Level.NVLINK_DOMAIN
    """The nearest that matters, or that is required."""
    required: bool = False
    """Whether the whole group has to be in one domain of that level."""

    @property
    def levels(self) -> list[Level]:
        """The levels of which as few domains as can be are wanted, the nearest first.

        Inside a domain that is required every level matters.
        """
        every = list(Level)
        return every if self.required else every[every.index(self.level) :]

    def relaxed(self) -> GroupWish:
        """Return the wish with what it requires as a preference."""
        return replace(self, required=False)
