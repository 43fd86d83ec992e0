"""A GPU that falls off the bus changes the status and not the topology; only an answer replaces a fact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.gpus.discovery import NodeDiscovery
from tests.agent.conftest import Discover
from topology.node.status import GpuStatus, NodeGpuStatus

Described = Callable[..., Path]

GPU3 = "GPU-41000000-0000-4000-8000-000000000003"


def status_of(discovery: NodeDiscovery, uuid: str) -> GpuStatus:
    """Return the status of the GPU with that UUID, or name."""
    return next(gpu for gpu in discovery.status.gpus if gpu.uuid == uuid)


@pytest.mark.parametrize("machine", ["lost_gpu", "lost_handle"])
def test_lost_gpu_stays_in_the_topology_that_knew_it(machine: str, found: Discover) -> None:
    """Whether NVML still has its handle or not: the same topology, to the byte, and an unhealthy GPU."""
    before = found("hgx_h100")
    after = found(machine, before=before)
    assert after.topology == before.topology
    assert status_of(after, GPU3).reasons == ("gpu is lost",)
    assert after.status.unhealthy == {GPU3}


@pytest.mark.parametrize("machine", ["lost_gpu", "lost_handle"])
def test_gpu_that_nobody_ever_knew_is_listed_by_index(machine: str, found: Discover) -> None:
    """Without a UUID it cannot stand in the topology; the status says that one of eight is missing."""
    discovery = found(machine)
    assert [gpu.index for gpu in discovery.topology.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert status_of(discovery, "index-3") == GpuStatus("index-3", healthy=False, reasons=("gpu is lost",))


def test_the_last_published_discovery_is_memory_enough(found: Discover) -> None:
    """After a restart of the agent the annotations remember what NVML can no longer tell; other GPUs are read anew."""
    published = NodeDiscovery(found("hgx_h100").topology, NodeGpuStatus(7))
    assert found("lost_handle", before=published).topology == published.topology


def test_lost_gpu_with_a_readable_name_keeps_what_is_known(found: Discover, described: Described) -> None:
    """Some calls still answer from the driver's memory."""
    lost = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkState")
    discovery = found(described("hgx_h100", *(f"fail {function} 3 GPU_IS_LOST" for function in lost)))
    gpu = discovery.topology.gpus[3]
    assert (gpu.uuid, gpu.memory_bytes, gpu.switch_links, gpu.numa_node) == (GPU3, None, 0, 0)
    assert not status_of(discovery, GPU3).healthy
    assert discovery.topology.label(0, 3) == "NODE"


def test_gpu_that_needs_a_reset_is_unhealthy(found: Discover, described: Described) -> None:
    """It is there and must not be given away."""
    discovery = found(described("hgx_h100", "fail nvmlDeviceGetMemoryInfo_v2 3 RESET_REQUIRED"))
    assert status_of(discovery, GPU3).reasons == ("reset required",)
    assert status_of(discovery, GPU3).healthy is False


def test_a_passing_failure_does_not_change_the_topology(found: Discover, described: Described) -> None:
    """NVML is busy for a moment: a topology that flickers would void every plan made on it."""
    before = found("hgx_h100")
    for function in (
        "nvmlDeviceGetName",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetP2PStatus",
        "nvmlDeviceGetMigMode",
    ):
        assert found(described("hgx_h100", f"fail {function} 3 TIMEOUT"), before=before).topology == before.topology


def test_a_failure_is_told_though_the_fact_stands(found: Discover, described: Described) -> None:
    """People see which fact is old."""
    before = found("hgx_h100")
    discovery = found(described("hgx_h100", "fail nvmlDeviceGetName 3 TIMEOUT"), before=before)
    assert status_of(discovery, GPU3).reasons == ("model unknown: TIMEOUT",)
    assert status_of(discovery, GPU3).healthy


def test_not_supported_is_an_answer(found: Discover, described: Described) -> None:
    """What NVML says it does not have is forgotten, not remembered."""
    before = found("hgx_h100")
    discovery = found(described("hgx_h100", "fail nvmlDeviceGetEccMode 3 NOT_SUPPORTED"), before=before)
    assert discovery.topology.gpus[3].ecc_enabled is None


def test_what_nvml_says_replaces_what_it_said(found: Discover, described: Described) -> None:
    """A link that goes down is told, also while another GPU is lost."""
    one_down = found(described("dgx1v", "link 0 2 inactive"), before=found("dgx1v"))
    assert one_down.topology.label(0, 3) == "NV1"
    lost_and_down = found(described("lost_gpu", "link 0 17 inactive"), before=found("hgx_h100"))
    assert [lost_and_down.topology.gpus[index].switch_links for index in (0, 1, 3)] == [17, 18, 18]


def test_another_gpu_in_the_same_slot_is_another_gpu(found: Discover, described: Described) -> None:
    """After a swap nothing of the old GPU is left."""
    swapped = found(
        described("hgx_h100", "gpu 3 uuid GPU-5a000000-0000-4000-8000-000000000003"), before=found("hgx_h100")
    )
    assert swapped.topology.gpus[3].uuid == "GPU-5a000000-0000-4000-8000-000000000003"
    assert GPU3 not in swapped.topology.by_uuid


def test_facts_are_remembered_by_uuid(found: Discover, described: Described) -> None:
    """After a reboot the indexes may be others."""
    before = found(described("dgx1v", "gpu 0 name Tesla V100-SXM2-16GB"))
    first, last = before.topology.gpus[0], before.topology.gpus[7]
    swapped = (f"gpu 0 uuid {last.uuid}", f"gpu 7 uuid {first.uuid}", "fail nvmlDeviceGetName 0,7 TIMEOUT")
    after = found(described("dgx1v", *swapped), before=before).topology
    assert [after.gpus[0].model, after.gpus[7].model] == [last.model, first.model]


def test_gpu_that_moved_is_not_remembered_where_it_was(found: Discover, described: Described) -> None:
    """Its old index is nameless now, and it stands at another: it is there once."""
    moved = described("hgx_h100", f"gpu 4 uuid {GPU3}", "fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST")
    after = found(moved, before=found("hgx_h100")).topology
    assert [gpu.index for gpu in after.gpus] == [0, 1, 2, 4, 5, 6, 7]


def test_two_gpus_of_one_name_are_not_both_believed(found: Discover, described: Described) -> None:
    """A broken library must not make the whole node unreadable."""
    discovery = found(described("hgx_h100", "gpu 4 uuid GPU-41000000-0000-4000-8000-000000000003"))
    assert len(discovery.topology) == 7
    assert status_of(discovery, "index-4").reasons == ("not identified: DUPLICATE_UUID",)


def test_numbers_of_device_nodes_stay_while_a_gpu_is_lost(found: Discover, described: Described) -> None:
    """A container may hold the GPU under that name meanwhile."""
    swapped = [f"gpu {index} minor {7 - index}" for index in range(8)]
    before = found(described("hgx_h100", *swapped))
    assert before.minors == {gpu.uuid: 7 - gpu.index for gpu in before.topology.gpus}
    lost = found(described("hgx_h100", *swapped, "fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST"), before=before)
    assert lost.minors == before.minors
    unsaid = found(described("hgx_h100", "fail nvmlDeviceGetMinorNumber 0-7 NOT_SUPPORTED"))
    assert unsaid.minors == {}
