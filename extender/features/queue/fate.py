"""What becomes of the pods of a plan."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    """What became of a planned pod."""

    SERVED = "served"
    """Bound on its planned node."""
    ELSEWHERE = "elsewhere"
    """Bound on another one."""
    GONE = "gone"
    TAKEN_BACK = "taken-back"
    """Its plan was given up before its gate was open."""
    GPUS_TAKEN = "gpus-taken"
    """The same, as another pod has its GPUs: one without our gate, perhaps."""
    LEFT = "left"
    """Open, and not bound for so long that its GPUs are no longer held; kube-scheduler may still place it."""
    STRANDED = "stranded"
    """Pinned to a node that does not exist any more; only a new pod can go elsewhere."""
    UNDONE = "undone"
    """Open, and kept back again: what was allocated for it has been taken back. It waits for another plan."""
