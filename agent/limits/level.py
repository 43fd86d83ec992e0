"""Decides which limit is in force on a node, and why not a stronger one; from what was found, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topology.node.sharing import Limits

_SAYS = {
    "FUNCTION_NOT_FOUND": "the driver's NVML knows no memory limits by cgroup: they come with driver r615",
    "NO_PERMISSION": "the agent may not set memory limits: that takes root and the capability SYS_ADMIN",
    "NOT_FOUND": "the pods' cgroups have no dmem files: a cgroup above them lacks +dmem in cgroup.subtree_control",
    "NOT_SUPPORTED": "the driver takes no memory limits for these GPUs, as where MIG is on",
    "READS_OTHERWISE": "NVML reads back another memory limit than was set",
    "TIMEOUT": "NVML did not answer in time",
}
"""NVML's code, or ours, as a reason."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found of a node that shares GPUs."""

    gpus: frozenset[str]
    """That may be shared."""
    unified: bool = True
    """Whether /sys/fs/cgroup is cgroup v2."""
    pods: bool = True
    """Whether the kubelet's cgroups are seen there."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """GPU → NVML's code, where it did not take a limit."""
    mps: bool = False
    """Whether MPS may be used."""
    daemons: frozenset[str] = frozenset()
    """The GPUs for which an MPS daemon answers."""


@dataclass(frozen=True, slots=True)
class LimitsLevel:
    """What holds containers to their shares."""

    limits: Limits
    reasons: tuple[str, ...] = ()
    """Why nothing stronger, one for each that is."""


NOT_LOOKED = LimitsLevel(Limits.NONE, ("the agent has not looked for limits yet",))


def decide(findings: Findings) -> LimitsLevel:
    """Return the strongest limit that holds on all GPUs that may be shared.

    >>> decide(Findings(frozenset({"GPU-1"}), unified=False)).reasons[0]
    'the node has cgroup v1, and the driver takes memory limits with cgroup v2 only'
    """
    if not (against_cgroup := _against_cgroup(findings)):
        return LimitsLevel(Limits.CGROUP)
    if not (against_mps := _against_mps(findings)):
        return LimitsLevel(Limits.MPS, (against_cgroup,))
    return LimitsLevel(Limits.NONE, (against_cgroup, against_mps))


def refused(code: str) -> str:
    """Return why NVML did not take a limit, in words."""
    return _SAYS.get(code, f"NVML refused a memory limit ({code})")


def _against_cgroup(findings: Findings) -> str:
    if not findings.unified:
        return "the node has cgroup v1, and the driver takes memory limits with cgroup v2 only"
    if not findings.pods:
        return "the agent does not see the kubelet's cgroups under /sys/fs/cgroup"
    codes = sorted({findings.refusals[gpu] for gpu in findings.gpus if gpu in findings.refusals})
    return refused(codes[0]) if codes else ""


def _against_mps(findings: Findings) -> str:
    if not findings.mps:
        return "MPS is off (sharing.mps)"
    if missing := len(findings.gpus - findings.daemons):
        of = "any GPU" if missing == len(findings.gpus) else f"{missing} of {len(findings.gpus)} GPUs"
        return f"no MPS daemon answers for {of}"
    return ""
