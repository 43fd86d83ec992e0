"""What is unhealthy, what is only worth watching, and memory in coarse steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gpus.facts import GpuMemory, Known
from agent.gpus.faults import blackout_status, gpu_status
from tests.agent.builders import gpu_facts
from tests.agent.conftest import Discover
from topology.node.status import GpuStatus, NodeGpuStatus

Described = Callable[..., Path]
GIB = 1 << 30


@pytest.mark.parametrize(
    ("line", "healthy", "reason"),
    [
        ("gpu 0 remap_failure 1", False, "row remap failed"),
        ("gpu 0 remap_pending 1", True, "row remap pending"),
        ("fabric 0 in-progress", True, "fabric in progress"),
        ("fabric 0 completed TIMEOUT", True, "fabric failed: TIMEOUT"),
        ("health 0 2", True, "fabric unhealthy"),
        ("health 0 3", True, "fabric capacity limited"),
        ("health 0 1 0x10", True, "fabric route unhealthy"),
        ("health 0 1 0x8000", True, "fabric manager gone"),
        ("health 0 1 0x1", True, "fabric bandwidth degraded"),
        ("health 0 1 0x6aaa", True, None),
        ("gpu 0 pcie_width_now 8", True, "pcie x8 of x16"),
        ("gpu 0 pcie 5 8", True, "pcie x8, others of its model x16"),
        ("fail nvmlDeviceGetEccMode 0 UNKNOWN", True, "ecc enabled unknown: UNKNOWN"),
        ("fail nvmlDeviceGetEccMode 0 NOT_SUPPORTED", True, None),
    ],
)
def test_reasons(line: str, healthy: bool, reason: str | None, found: Discover, described: Described) -> None:
    """Only what makes a GPU unfit for new pods is unhealthy; a fact that the GPU does not have is no reason."""
    status = found(described("hgx_h100", line)).status.gpus[0]
    assert (status.healthy, status.reasons) == (healthy, (reason,) if reason else ())


def test_pages_wait_for_a_reset_on_older_gpus(found: Discover, described: Described) -> None:
    """Volta retires pages where Ampere remaps rows."""
    assert found(described("dgx1v", "gpu 5 retired_pages_pending 1")).status.gpus[5].reasons == (
        "page retirement pending",
    )


def test_mig_is_marked(found: Discover) -> None:
    """On, off, and not known."""
    modes = [gpu.mig_enabled for gpu in found("mig_on").status.gpus]
    assert modes == [False, True, False, False, False, False, True, False]
    assert found("dgx1v").status.gpus[0].mig_enabled is None


def test_node_without_nvml_has_no_gpu_to_give(found: Discover) -> None:
    """The driver is gone for a while: nothing is forgotten, and nothing is healthy."""
    status = blackout_status(found("hgx_h100").status, "DRIVER_NOT_LOADED")
    assert {gpu.reasons for gpu in status.gpus} == {("nvml unavailable: DRIVER_NOT_LOADED",)}
    assert len(status.unhealthy) == 8


def used(gib: float, total_gib: int = 80, before: int | None = None) -> int | None:
    """Return the memory in use that a status shows."""
    facts = gpu_facts(memory=Known(GpuMemory(total_gib * GIB, int(gib * GIB))))
    return gpu_status("GPU-1", facts, before=GpuStatus("GPU-1", memory_used_gib=before)).memory_used_gib


def test_memory_in_use_goes_in_steps() -> None:
    """A sixteenth of the GPU, rounded up: used is never shown as free."""
    assert [used(gib) for gib in (0, 0.1, 5, 5.1, 79)] == [0, 5, 5, 10, 80]
    assert used(3.2, total_gib=8) == 4


def test_memory_in_use_does_not_flicker_at_a_step() -> None:
    """It goes up at once, and down when a whole step is free."""
    assert [used(10.1, before=10), used(9.9, before=15), used(5.1, before=15), used(4.9, before=15)] == [15, 15, 15, 5]


@given(st.lists(st.floats(0, 80), min_size=2, max_size=30))
def test_memory_in_use_is_never_understated(samples: list[float]) -> None:
    """Whatever came before, at most two steps too much and nothing too little."""
    before = None
    for gib in samples:
        before = used(gib, before=before)
        assert before is not None
        assert gib <= before + 1e-6 <= gib + 11


def test_status_is_empty_before_the_first_discovery() -> None:
    """A blackout of a node that never had GPUs invents none."""
    assert blackout_status(NodeGpuStatus(3), "UNKNOWN") == NodeGpuStatus(0)
