"""What people are told of the limits on a node's shares."""

from __future__ import annotations

from agent.health.announcement import Announcement
from agent.limits.level import LimitsLevel
from topology.node.sharing import Limits

_SAYS = {
    Limits.CGROUP: "The driver holds pods to their shares of GPUs",
    Limits.MPS: "Only MPS holds containers to their shares of GPUs",
    Limits.NONE: "Nothing holds containers to their shares of GPUs",
}


def announce_level(level: LimitsLevel) -> Announcement:
    """Return what holds containers to their shares now, and why nothing stronger.

    >>> announce_level(LimitsLevel(Limits.MPS, ("the node has cgroup v1",))).note
    'Only MPS holds containers to their shares of GPUs: the node has cgroup v1'
    """
    why = f": {'; '.join(level.reasons)}" if level.reasons else ""
    return Announcement("SharingLimits", _SAYS[level.limits] + why, is_warning=level.limits is Limits.NONE)
