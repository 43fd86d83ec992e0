"""N3: a GPU that has a critical error, or is lost, is offered to nobody some seconds later, and is back when it is well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extender.polling import until
from tests.kubelet.played import GPU3, playing
from tests.nvml.library import FakeNvml

GOAL_SECONDS = 10.0


@pytest.mark.slow
async def test_n3_gpu_with_a_critical_error_is_soon_not_offered(
    tmp_path: Path, fake_nvml: FakeNvml, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """Between two discoveries, which are half a minute apart."""
    async with playing(tmp_path, fake_nvml, discovery_interval="30s", discovery_xidRecovery="3s") as node:
        node.error(3, 79)
        seconds = await node.offers(7)
        await until(lambda: node.reasons == ("xid 79, needs a reset",))
    figure(f"N3: a GPU with XID 79 is offered no more after {seconds:.1f} s (goal {GOAL_SECONDS:.0f})")
    assert seconds <= goal(GOAL_SECONDS)


@pytest.mark.slow
async def test_gpu_comes_back_after_a_transient_error(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    """Nobody has to start anything anew."""
    async with playing(tmp_path, fake_nvml, discovery_interval="500ms", discovery_xidRecovery="2s") as node:
        node.error(3, 74)
        await node.offers(7)
        await node.offers(8)
        await until(lambda: node.reasons == ("on probation: xid 74",))


@pytest.mark.slow
async def test_n3_gpu_that_is_lost_stays_away_however_long_it_says_nothing(
    tmp_path: Path, fake_nvml: FakeNvml, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """The error has the agent make a discovery, which finds the reason; it stays in the list, or kubelets call it healthy."""
    async with playing(tmp_path, fake_nvml, discovery_interval="30s", discovery_xidRecovery="100ms") as node:
        node.say("fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST")
        node.error(3, 79)
        seconds = await node.offers(7)
        await until(lambda: "gpu is lost" in node.reasons)
        assert node.kubelet.devices.unhealthy == {GPU3}
    figure(f"N3: a GPU that is lost is offered no more after {seconds:.1f} s (goal {GOAL_SECONDS:.0f})")
    assert seconds <= goal(GOAL_SECONDS)


@pytest.mark.slow
async def test_error_of_an_application_changes_nothing(tmp_path: Path, fake_nvml: FakeNvml) -> None:
    """The one after it on another GPU shows that it was heard."""
    async with playing(tmp_path, fake_nvml, discovery_interval="30s") as node:
        node.error(3, 31)
        node.error(4, 79)
        await node.offers(7)
        assert GPU3 in node.kubelet.devices.healthy
