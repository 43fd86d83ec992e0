"""How much of each GPU pods may share: what NVML tells, less what the driver keeps; and never a guess."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.gpus.discovery import NOTHING, NodeDiscovery, discover
from agent.gpus.facts import Answer, Gap, GpuMemory, Known, Missing, NvmlFacts
from agent.gpus.host import Host
from agent.gpus.sharing_rule import IN_SLICES, NO_MEMORY, NO_RESERVE, OTHER_MODEL, TOO_SMALL, SharingRule
from tests.agent.builders import gpu_facts, machine_of
from tests.agent.conftest import Read
from topology.node.status import GpuStatus

GIB, MIB = 1 << 30, 1 << 20
NOWHERE = Path("/nonexistent")
KNOWN = Known(GpuMemory(81559 * MIB, 0, 551 * MIB))


def facts(
    memory: Answer[GpuMemory] = KNOWN, model: str = "NVIDIA H100 80GB HBM3", uuid: str = "GPU-1", **more: object
) -> NvmlFacts:
    """Return a machine with one GPU."""
    gpu = gpu_facts(uuid=Known(uuid), model=Known(model), memory=memory, **more)
    return replace(machine_of(), gpus=(Known(gpu),))


def applied(rule: SharingRule, told: NvmlFacts, before: NodeDiscovery = NOTHING) -> NodeDiscovery:
    """Return what a discovery says then."""
    return rule.applied(discover(told, Host(NOWHERE, NOWHERE), before), told, before)


@pytest.mark.parametrize(("reserve", "gib"), [(None, 78), (0, 78), (1, 78), (10, 69)])
def test_a_share_is_of_whole_gib_that_the_driver_does_not_keep(reserve: int | None, gib: int) -> None:
    """79.6 GiB, of which it keeps 0.5: each is rounded to the safe side, and less than it keeps is never kept."""
    assert applied(SharingRule((), reserve), facts()).status.gpus[0].share_gib == gib


@pytest.mark.parametrize(
    ("rule", "told", "reason"),
    [
        (SharingRule(), facts(Known(GpuMemory(80 * GIB, 0))), NO_RESERVE),
        (SharingRule(("*a100*", "l4")), facts(), OTHER_MODEL),
        (SharingRule(), facts(mig_enabled=Known(True)), IN_SLICES),
        (SharingRule((), 90), facts(), TOO_SMALL),
        (SharingRule(), facts(Missing(Gap.FAILED, "TIMEOUT")), NO_MEMORY),
    ],
    ids=["nobody tells the reserve", "model", "MIG", "nothing left", "memory unknown"],
)
def test_gpu_of_which_that_is_not_known_or_not_wanted_is_not_shared(
    rule: SharingRule, told: NvmlFacts, reason: str
) -> None:
    """And the reason is kept for people."""
    found = applied(rule, told)
    assert found.status.gpus[0].share_gib is None
    assert found.unshared == (reason,)


@pytest.mark.parametrize(
    ("total_gib", "kept_gib", "share_gib", "unshared"),
    [(80, 0, 80, ()), (2, 1, 1, ()), (1, 1, None, (TOO_SMALL,))],
    ids=["the driver keeps nothing", "one GiB is left", "nothing is left"],
)
def test_all_that_is_left_is_shared_to_the_last_gib(
    total_gib: int, kept_gib: int, share_gib: int | None, unshared: tuple[str, ...]
) -> None:
    """There is no share of nothing."""
    found = applied(SharingRule(), facts(Known(GpuMemory(total_gib * GIB, 0, kept_gib * GIB))))
    assert (found.status.gpus[0].share_gib, found.unshared) == (share_gib, unshared)


def test_a_gpu_that_nvml_cannot_identify_keeps_no_other_from_being_shared() -> None:
    """Nor does one that has a status, and is missing in the topology: nothing of it is shared."""
    told = facts()
    told = replace(told, gpus=(Missing(Gap.LOST, "GPU_IS_LOST"), *told.gpus))
    found = discover(told, Host(NOWHERE, NOWHERE), NOTHING)
    found = replace(found, status=replace(found.status, gpus=(*found.status.gpus, GpuStatus("GPU-gone"))))
    shared = SharingRule().applied(found, told, NOTHING)
    gib = {gpu.uuid: gpu.share_gib for gpu in shared.status.gpus}
    assert (gib["GPU-1"], gib["GPU-gone"]) == (78, None)
    assert shared.unshared == ()


def test_each_reason_is_named_once_and_in_order() -> None:
    """However many GPUs have it: the node's status changes only when a reason does."""
    several = (
        facts(Known(GpuMemory(80 * GIB, 0)), uuid="GPU-1"),
        facts(model="NVIDIA L4", uuid="GPU-2"),
        facts(Known(GpuMemory(GIB, 0, GIB)), uuid="GPU-3"),
        facts(mig_enabled=Known(True), uuid="GPU-4"),
        facts(model="NVIDIA L4", uuid="GPU-5"),
    )
    gpus = tuple(gpu for one in several for gpu in one.gpus)
    found = applied(SharingRule(("*H100*",)), replace(machine_of(), gpus=gpus))
    assert found.unshared == (IN_SLICES, TOO_SMALL, OTHER_MODEL, NO_RESERVE)


def test_old_driver_needs_to_be_told_the_reserve() -> None:
    """It is what a person says then."""
    told = facts(Known(GpuMemory(80 * GIB, 0)))
    assert applied(SharingRule((), 2), told).status.gpus[0].share_gib == 78


def test_models_are_named_by_globs_in_any_case() -> None:
    """As pods name them."""
    assert applied(SharingRule(("*a100*", "*H100*")), facts()).status.gpus[0].share_gib == 78


def test_what_nvml_cannot_tell_now_stays_as_it_was() -> None:
    """The kubelet would take share devices for gone that pods hold."""
    before = applied(SharingRule(), facts())
    now = applied(SharingRule(), facts(Missing(Gap.LOST, "GPU_IS_LOST")), before)
    assert [gpu.share_gib for gpu in now.status.gpus] == [78]


def test_nvml_says_what_the_driver_keeps(read: Read) -> None:
    """Through the real binding: 551 MiB of each GPU of an HGX H100."""
    told = read("hgx_h100")
    shared = applied(SharingRule(), told)
    assert {gpu.share_gib for gpu in shared.status.gpus} == {78}
