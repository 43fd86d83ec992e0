"""Whether pods may share GPUs of a node, and what holds them to their shares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Limits(StrEnum):
    """What keeps a container from taking more of a GPU than its share, the strongest first."""

    CGROUP = "cgroup"
    """The driver, by a memory limit of the pod's cgroup."""
    MPS = "mps"
    """NVIDIA's MPS, for processes that use it."""
    NONE = "none"
    """Nothing: shares are counted, and that is all."""

    @property
    def words(self) -> str:
        """What people are told of it."""
        return "nothing limits them" if self is Limits.NONE else f"limits by {self}"


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a node shares its GPUs; one without shares none."""

    max_gpus: int
    """At most so many of the node's GPUs are shared at one time; 0: none can be just now."""
    limits: Limits = Limits.NONE
    reasons: tuple[str, ...] = ()
    """Why none can be shared just now, or why the limits are not stronger."""
