"""A GPU that is sick, as its agent or its driver says, goes to no pod; one that falls sick before the gate opens is given up."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from extender.binding.intents import AllocateClaim, FencePod, Intent, MarkClaim, OpenGate, SwapLedger
from extender.features.dra.allocations import AllocationOutcome
from tests.dra import gpu, read_slice, resource_slice
from tests.extender.features.dra.claim_site import ClaimSite
from topology.annotations.status_codec import encode_status
from topology.formats.catalog import machine
from topology.node.status import GpuStatus, NodeGpuStatus

UUIDS = [each.uuid for each in machine("dgx-a100", host="n0").gpus]
XID = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
FIRST = frozenset({"gpu-0", "gpu-1"})
"""What a pod of two GPUs gets while all are free."""


def sick(site: ClaimSite, *minors: int) -> None:
    """Let the agent call GPUs sick."""
    said = (GpuStatus(UUIDS[minor], healthy=False, reasons=("xid 79",), sick_since=1) for minor in minors)
    site.world.annotate_node("n0", status=encode_status(NodeGpuStatus(5, tuple(said))))


def tainted(site: ClaimSite, *minors: int) -> None:
    """Let the driver publish its GPUs anew, some with a taint."""
    devices = [gpu(minor, uuid, *([XID] if minor in minors else [])) for minor, uuid in enumerate(UUIDS)]
    site.planner.state.claims.slices.changed(read_slice(resource_slice("n0", devices, generation=2)))


EITHER = pytest.mark.parametrize("fall_ill", [sick, tainted])


@EITHER
def test_a_sick_gpu_is_never_allocated(fall_ill: Callable[..., None]) -> None:
    """Agent and driver have the same say; a pod for which the others do not suffice waits."""
    site = ClaimSite(1, Random(0))
    fall_ill(site, 0, 3)
    for name, count in (("four", 4), ("two", 2), ("one", 1)):
        site.create(name, count)
    site.ticks(8)
    given = [devices for _, devices in site.allocations().values()]
    assert frozenset[str]().union(*given) == {f"gpu-{minor}" for minor in (1, 2, 4, 5, 6, 7)}
    assert [site.node_of(name) for name in ("four", "two", "one")] == ["n0", "n0", None]


@EITHER
@pytest.mark.parametrize("before", [SwapLedger, MarkClaim, AllocateClaim])
def test_a_gpu_that_falls_sick_before_the_gate_opens_is_given_up(
    fall_ill: Callable[..., None], before: type[Intent]
) -> None:
    """Between the plan and the allocation, or after it: claims may be made minutes after their pods."""
    site = ClaimSite(1, Random(0))
    site.create("a", 2)
    news = [fall_ill]

    def fall_ill_once(intent: Intent) -> None:
        if isinstance(intent, before) and news:
            news.pop()(site, 0, 1, 2, 3)

    site.answer = fall_ill_once
    site.ticks(40)
    assert site.planner.counted(AllocationOutcome.INVALID) == 1
    assert site.node_of("a") == "n0" and site.allocations()["a-c0"][1].isdisjoint({f"gpu-{n}" for n in range(4)})
    requests = [type(intent) for intent in site.world.intents]
    assert requests.index(FencePod) < requests.index(OpenGate)
    assert site.world.claims("n0").keys().isdisjoint(UUIDS[:4])


@EITHER
def test_a_pod_keeps_a_gpu_that_falls_sick_after_the_gate_was_opened(fall_ill: Callable[..., None]) -> None:
    """It may run; nobody but its owner ends it."""
    site = ClaimSite(1, Random(0))
    site.create("a", 2)
    site.ticks(2)
    fall_ill(site, 0, 1, 2, 3)
    site.ticks(5)
    assert (site.node_of("a"), site.allocations()["a-c0"]) == ("n0", ("n0", FIRST))
