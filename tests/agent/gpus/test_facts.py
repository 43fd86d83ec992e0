"""Every fact of a GPU reaches the topology in its own words, or is unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.discovery import discover
from agent.gpus.facts import Fabric, FabricHealth, FabricState, Gap, GpuProcess, Known, Missing, Watched
from agent.gpus.host import Host
from agent.gpus.nvml.reader import read_processes
from tests.agent.conftest import Discover, Read
from tests.nvml.library import FakeNvml, machine
from topology.node.model import Gpu, NvlinkDomain

Described = Callable[..., Path]


def gpu(answers: Known[object] | Missing, name: str) -> object:
    """Return one fact of a GPU that has a handle."""
    assert isinstance(answers, Known)
    return getattr(answers.value, name)


def test_all_facts_of_a_gb200(found: Discover) -> None:
    """The richest machine: its memory is NUMA nodes, MIG has spare ones, and its NVLinks leave the node."""
    node = found("gb200_tray").topology
    assert node.gpus[3] == Gpu(
        index=3,
        uuid="GPU-9b200000-0000-4000-8000-000000000003",
        model="NVIDIA GB200",
        memory_bytes=189471 << 20,
        pci="00000019:01:00.0",
        numa_node=1,
        numa_affinity="1,26-33",
        cpu_affinity="72-143",
        compute_capability=(10, 0),
        switch_links=18,
        pcie_generation=5,
        pcie_width=16,
        mig_enabled=False,
        ecc_enabled=True,
        memory_numa_node=26,
    )
    assert (node.driver_version, node.cuda_version) == ("570.86.15", "12.8")
    assert node.domain == NvlinkDomain("8f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", 32766)


@pytest.mark.slow
def test_all_facts_of_an_old_driver(found: Discover) -> None:
    """Symbols that a driver of 2018 does not have: version 1 of the memory call still tells the size."""
    node = found("old_driver").topology
    assert node.gpus[0] == Gpu(
        index=0,
        uuid="GPU-d61e0000-0000-4000-8000-000000000000",
        model="Tesla V100-SXM2-32GB",
        memory_bytes=32510 << 20,
        pci="00000000:06:00.0",
        cpu_affinity="0-19,40-59",
        compute_capability=(7, 0),
        pcie_generation=3,
        pcie_width=16,
        ecc_enabled=True,
    )


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("gpu 0 memory_mib -", "memory_bytes"),
        ("fail nvmlDeviceGetMemoryAffinity 0 NOT_SUPPORTED", "numa_node"),
        ("fail nvmlDeviceGetCpuAffinity 0 NOT_SUPPORTED", "cpu_affinity"),
        ("fail nvmlDeviceGetCudaComputeCapability 0 UNKNOWN", "compute_capability"),
        ("gpu 0 memory_mib 0", "memory_bytes"),
        ("gpu 0 pcie 0 0", "pcie_generation"),
        ("gpu 0 pcie 255 255", "pcie_width"),
        ("gpu 0 ecc -", "ecc_enabled"),
        ("gpu 0 memory_numa_node -", "memory_numa_node"),
        ("gpu 0 memory_numa_node 70000", "memory_numa_node"),
        ("fail nvmlDeviceGetPciInfo_v3 0 UNKNOWN", "pci"),
    ],
)
def test_what_nvml_does_not_say_is_unknown(line: str, field: str, found: Discover, described: Described) -> None:
    """Never a default that looks like a fact; a PCIe generation of 0 is a virtual machine's way not to say."""
    assert getattr(found(described("gb200_tray", line)).topology.gpus[0], field) is None


def test_domain_needs_one_partition(found: Discover, described: Described) -> None:
    """GPUs in two cliques, or a fabric that stays inside the node, make no domain of the node."""
    other = "fabric 3 completed SUCCESS 8f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0 1"
    assert found(described("gb200_tray", other)).topology.domain is None
    assert found("hgx_h100").topology.domain is None


def test_a_gpu_memory_node_is_believed_on_coherent_platforms_only(found: Discover, described: Described) -> None:
    """Elsewhere the call should not be supported, and some libraries answer with the host's node all the same."""
    assert found("hgx_h100").topology.gpus[0].memory_numa_node is None
    assert found("power9_ac922").topology.gpus[0].memory_numa_node == 255
    assert found(described("hgx_h100", "gpu 0 memory_numa_node 0")).topology.gpus[0].memory_numa_node is None


def test_the_three_ways_of_not_saying_stay_apart(read: Read, described: Described) -> None:
    """Not supported, lost and failed come out of the real binding as themselves, with NVML's own word."""
    expected = {
        "NOT_SUPPORTED": Gap.UNSUPPORTED,
        "FUNCTION_NOT_FOUND": Gap.UNSUPPORTED,
        "GPU_IS_LOST": Gap.LOST,
        "RESET_REQUIRED": Gap.LOST,
        "NO_PERMISSION": Gap.FAILED,
        "UNKNOWN": Gap.FAILED,
    }
    for code, gap in expected.items():
        facts = read(described("hgx_h100", f"fail nvmlDeviceGetEccMode 2 {code}"))
        assert gpu(facts.gpus[2], "ecc_enabled") == Missing(gap, code)
        assert gpu(facts.gpus[1], "ecc_enabled") == Known(True)


@pytest.mark.slow
def test_fabric_is_read_from_the_oldest_call_that_the_driver_has(read: Read, described: Described) -> None:
    """The versioned call came after the plain one."""
    untold = Fabric(FabricState.COMPLETED, "SUCCESS", "8f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", 32766)
    told = replace(untold, health=FabricHealth.HEALTHY)
    assert gpu(read("gb200_tray").gpus[0], "fabric") == Known(told)
    old = described("gb200_tray", "missing nvmlDeviceGetGpuFabricInfoV")
    assert gpu(read(old).gpus[0], "fabric") == Known(untold)


def test_a_call_for_the_fabric_that_fails_is_not_replaced_with_an_older_one(read: Read, described: Described) -> None:
    """What that says would count instead, and a fabric without an answer for a moment would be forgotten, not remembered."""
    failures = ("fail nvmlDeviceGetGpuFabricInfoV 0 TIMEOUT", "fail nvmlDeviceGetGpuFabricInfo 0 NOT_SUPPORTED")
    busy = described("gb200_tray", *failures)
    assert gpu(read(busy).gpus[0], "fabric") == Missing(Gap.FAILED, "TIMEOUT")


def test_what_is_counted_is_read_of_each_gpu(read: Read) -> None:
    """Errors by place and kind, over all links; what the driver does not say of one kind is left out of it."""
    watched = gpu(read("watched_h100").gpus[1], "watched")
    assert isinstance(watched, Watched)
    assert watched.memory_errors == Known(
        {("corrected", "dram"): 12, ("uncorrected", "dram"): 0, ("corrected", "sram"): 3, ("uncorrected", "sram"): 0}
    )
    assert watched.nvlink_errors == Known({"crc": 0, "replay": 0})
    assert watched.throttled_nanoseconds == Known({"power": 0, "hardware_heat": 0})
    assert (watched.margin_celsius, watched.pcie_width) == (Known(30), Known(16))
    assert (watched.sram_exceeded, watched.banks_without_spares) == (Known(value=False), Known(0))


def test_counters_are_as_wide_as_the_driver_makes_them(read: Read, described: Described) -> None:
    """More than 32 bits of errors, and a margin below nought."""
    lines = ("gpu 1 nvlink_crc 5000000000", "gpu 1 margin -4", "gpu 1 sram_uncorrected 9")
    watched = gpu(read(described("watched_h100", *lines)).gpus[1], "watched")
    assert isinstance(watched, Watched)
    assert watched.nvlink_errors == Known({"crc": 5_000_000_000, "replay": 0})
    assert watched.margin_celsius == Known(-4)
    assert isinstance(watched.memory_errors, Known)
    assert watched.memory_errors.value["uncorrected", "sram"] == 9


def test_slow_for_its_power_limit_is_not_slow_for_heat(read: Read, described: Described) -> None:
    """Only what the hardware does by itself: heat, and the power brake."""
    slow = read(described("watched_h100", "gpu 0 slowdown 4", "gpu 1 slowdown 64", "gpu 2 slowdown 132"))
    told = [gpu(facts, "watched") for facts in slow.gpus]
    assert [watched.throttled for watched in told if isinstance(watched, Watched)] == [
        Known(value) for value in (False, True, True, False)
    ]


def test_gpu_without_links_has_no_errors_of_links(read: Read) -> None:
    """Nought would say that they are well."""
    watched = gpu(read("pcie_l40s").gpus[0], "watched")
    assert isinstance(watched, Watched)
    assert watched.nvlink_errors == Missing(Gap.UNSUPPORTED, "NO_LINKS")


@pytest.mark.parametrize(
    ("line", "field", "code"),
    [
        ("fail nvmlDeviceGetSramEccErrorStatus 1 NO_PERMISSION", "sram_exceeded", "NO_PERMISSION"),
        ("fail nvmlDeviceGetRowRemapperHistogram 1 NOT_SUPPORTED", "banks_without_spares", "NOT_SUPPORTED"),
        ("gpu 1 margin -", "margin_celsius", "NOT_SUPPORTED"),
        ("gpu 1 pcie_replays -", "pcie_replays", "NOT_SUPPORTED"),
        ("gpu 1 recovery_action 99", "recovery_action", "99"),
        ("gpu 1 pcie_width_now 0", "pcie_width", "OUT_OF_RANGE"),
        ("fail nvmlDeviceGetFieldValues 1 UNKNOWN", "nvlink_errors", "UNKNOWN"),
        ("fail nvmlDeviceGetFieldValues 1 UNKNOWN", "corrected_errors", "UNKNOWN"),
    ],
)
def test_what_is_not_counted_says_why(
    line: str, field: str, code: str, found: Discover, read: Read, described: Described
) -> None:
    """And is no reason to say anything of the GPU."""
    machine = described("watched_h100", line)
    answer = getattr(gpu(read(machine).gpus[1], "watched"), field)
    assert isinstance(answer, Missing)
    assert answer.code == code
    assert found(machine).status.gpus[1].reasons == ()


def test_a_look_costs_few_calls(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """All fields come from two calls, and nothing is asked that waits."""
    asked = list[str]()
    real = pynvml._nvmlGetFunctionPointer

    def counted(name: str) -> object:
        asked.append(name)
        return real(name)

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", counted)
    read("watched_h100")
    calls = Counter(name for name in asked if name.startswith("nvmlDevice"))
    assert calls["nvmlDeviceGetFieldValues"] == 4 * 3  # what is counted, link states, link errors
    assert "nvmlDeviceGetPcieThroughput" not in calls
    watching = ("SramEccErrorStatus", "RowRemapperHistogram", "CurrPcieLinkWidth", "MarginTemperature")
    assert [calls[f"nvmlDeviceGet{name}"] for name in watching] == [4] * 4


@pytest.mark.parametrize("form", ["sentinel", "empty", "unreadable"])
def test_far_end_without_an_address_has_none(form: str, read: Read, described: Described) -> None:
    """All ones, nothing, or an error: none of them is an address to look for."""
    facts = read(described("hgx_h100", f"remote 0 0-17 {form}"))
    links = gpu(facts.gpus[0], "nvlinks")
    assert isinstance(links, Known)
    assert {link.remote_pci for link in links.value} == {None}


def test_text_that_nobody_can_read_is_a_failure(read: Read, described: Described) -> None:
    """A name with a control character, or none at all, never reaches an annotation."""
    assert gpu(read(described("hgx_h100", "gpu 0 uuid %\x07")).gpus[0], "uuid") == Missing(Gap.FAILED, "UNREADABLE")


@pytest.mark.parametrize(
    ("machine", "code", "reason"),
    [
        ("no_driver", "DRIVER_NOT_LOADED", "the kernel module is not loaded"),
        ("driver_updated", "LIB_RM_VERSION_MISMATCH", "the NVIDIA driver was updated"),
    ],
)
def test_nvml_that_does_not_start_says_why(machine: str, code: str, reason: str, read: Read) -> None:
    """People need to know which half of the driver is missing."""
    with pytest.raises(NvmlUnavailable, match=reason) as caught:
        read(machine)
    assert caught.value.code == code


def test_nvml_is_shut_down_after_every_discovery(read: Read) -> None:
    """An open NVML would keep the driver from being unloaded: another machine can be played at once."""
    assert len(read("hgx_h100").gpus) == 8
    assert len(read("gb200_tray").gpus) == 4


def test_processes_are_counted(found: Discover, read: Read, described: Described) -> None:
    """Those that compute; a driver that does not tell is not one without any."""
    machine = described("hgx_h100", "gpu 2 process 11 python", "gpu 2 process 12", "gpu 3 process -")
    told = [gpu(facts, "processes") for facts in read(machine).gpus]
    running = (GpuProcess(11, "python"), GpuProcess(12))
    assert told[1:4] == [Known(()), Known(running), Missing(Gap.UNSUPPORTED, "NOT_SUPPORTED")]
    discovery = found(machine)
    assert discovery.computing == {discovery.topology.gpus[2].uuid: 2}


def test_ignored_programs_are_not_counted(read: Read, described: Described, tmp_path: Path) -> None:
    """Else a GPU with an MPS server, which stays when its clients have gone, would never be given away again."""
    machine = described("hgx_h100", "gpu 2 process 11 /usr/bin/nvidia-cuda-mps-server", "gpu 2 process 12 python")
    discovery = discover(read(machine), Host(tmp_path), ignored=["nvidia-cuda-mps-server"])
    assert discovery.computing == {discovery.topology.gpus[2].uuid: 1}


def test_processes_of_some_gpus_are_read(fake_nvml: FakeNvml, described: Described) -> None:
    """Of those that are asked for; one that is not there is an answer, too."""
    first = "GPU-41000000-0000-4000-8000-000000000000"
    with fake_nvml.loaded(described("hgx_h100", "gpu 0,1 process 11 python train.py")):
        told = read_processes([first, "GPU-x"])
    assert told == {first: Known((GpuProcess(11, "python train.py"),)), "GPU-x": Missing(Gap.FAILED, "NOT_FOUND")}


def test_processes_without_nvml_are_not_none(fake_nvml: FakeNvml) -> None:
    """That nobody could be asked is said."""
    with fake_nvml.loaded(machine("no_driver")), pytest.raises(NvmlUnavailable, match="DRIVER_NOT_LOADED"):
        read_processes(["GPU-x"])
