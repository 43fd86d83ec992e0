"""Which limit is in force is the strongest that holds on all GPUs, and what is stronger is missing for a reason."""

from __future__ import annotations

import pytest

from agent.limits.level import Findings, decide
from topology.node.sharing import Limits

GPUS = frozenset({"GPU-a", "GPU-b"})
V1 = "the node has cgroup v1, and the driver takes memory limits with cgroup v2 only"
OFF = "MPS is off (sharing.mps)"


def findings(**found: object) -> Findings:
    """Return a node where all is well, but for what is given."""
    return Findings(GPUS, **found)  # type: ignore[arg-type]


def test_the_drivers_own_limit_is_the_strongest() -> None:
    """And needs no excuse."""
    assert (decide(findings()).limits, decide(findings()).reasons) == (Limits.CGROUP, ())
    assert decide(findings(mps=True, daemons=GPUS)).limits is Limits.CGROUP


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"unified": False}, V1),
        ({"pods": False}, "the agent does not see the kubelet's cgroups under /sys/fs/cgroup"),
        (
            {"refusals": {"GPU-a": "FUNCTION_NOT_FOUND"}},
            "the driver's NVML knows no memory limits by cgroup: they come with driver r615",
        ),
        (
            {"refusals": {"GPU-b": "NO_PERMISSION"}},
            "the agent may not set memory limits: that takes root and the capability SYS_ADMIN",
        ),
        (
            {"refusals": {"GPU-b": "NOT_FOUND"}},
            "the pods' cgroups have no dmem files: a cgroup above them lacks +dmem in cgroup.subtree_control",
        ),
        (
            {"refusals": {"GPU-a": "NOT_SUPPORTED"}},
            "the driver takes no memory limits for these GPUs, as where MIG is on",
        ),
        ({"refusals": {"GPU-a": "GPU_IS_LOST"}}, "NVML refused a memory limit (GPU_IS_LOST)"),
    ],
)
def test_what_is_missing_falls_to_the_next_level_with_its_reason(found: dict[str, object], reason: str) -> None:
    """To MPS where its daemons answer for all GPUs, else to nothing."""
    with_mps, without = decide(findings(**found, mps=True, daemons=GPUS)), decide(findings(**found))
    assert (with_mps.limits, with_mps.reasons) == (Limits.MPS, (reason,))
    assert (without.limits, without.reasons) == (Limits.NONE, (reason, OFF))


def test_mps_counts_only_where_it_serves_every_gpu() -> None:
    """One level is told for the node."""
    level = decide(findings(unified=False, mps=True, daemons=frozenset({"GPU-a"})))
    assert (level.limits, level.reasons) == (Limits.NONE, (V1, "no MPS daemon answers for 1 of 2 GPUs"))
    assert decide(findings(unified=False, mps=True)).reasons[1] == "no MPS daemon answers for any GPU"


def test_refusal_of_a_gpu_that_is_never_shared_says_nothing() -> None:
    """Such as one with MIG on."""
    assert decide(findings(refusals={"GPU-c": "NOT_SUPPORTED"})).limits is Limits.CGROUP
