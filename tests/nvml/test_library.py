"""The fake answers as the NVML reference says: what a test passes on here must not fail on a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_uint, c_ulong, create_string_buffer
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml.library import FakeNvml, has_compiler, machine


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def hgx(library: FakeNvml) -> Iterator[Any]:
    """Return the raw C library, initialised, playing an HGX H100."""
    with library.loaded(machine("hgx_h100")):
        pynvml.nvmlInit()
        yield pynvml.nvmlLib
        pynvml.nvmlShutdown()


def error_of(call: Callable[..., object], *arguments: object) -> int:
    """Return NVML's code for a call, 0 for success."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def gpu(index: int = 0) -> Any:
    """Return a handle."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


@pytest.mark.slow
def test_every_call_needs_init_and_ends_with_shutdown(library: FakeNvml) -> None:
    """UNINITIALIZED before and after; init counts its users."""
    with library.loaded(machine("hgx_h100")):
        assert error_of(pynvml.nvmlShutdown) == pynvml.NVML_ERROR_UNINITIALIZED
        pynvml.nvmlInit()
        pynvml.nvmlInit()
        handle = gpu()
        pynvml.nvmlShutdown()
        assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
        pynvml.nvmlShutdown()
        assert error_of(pynvml.nvmlDeviceGetName, handle) == pynvml.NVML_ERROR_UNINITIALIZED


def test_handles_and_pointers_are_checked(hgx: Any) -> None:
    """INVALID_ARGUMENT for an index past the last GPU, a handle that is none, or no place to answer to."""
    assert error_of(gpu, 8) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert error_of(pynvml.nvmlDeviceGetName, None) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert hgx.nvmlDeviceGetUUID(gpu(), None, 80) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_small_buffers_are_refused(hgx: Any) -> None:
    """INSUFFICIENT_SIZE, also when only the closing zero does not fit."""
    uuid = pynvml.nvmlDeviceGetUUID(gpu())
    buffer = create_string_buffer(96)
    assert hgx.nvmlDeviceGetUUID(gpu(), buffer, len(uuid)) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert hgx.nvmlDeviceGetUUID(gpu(), buffer, len(uuid) + 1) == pynvml.NVML_SUCCESS
    assert hgx.nvmlSystemGetDriverVersion(buffer, 3) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


def test_versions_of_structs_are_checked(hgx: Any) -> None:
    """ARGUMENT_VERSION_MISMATCH unless size and version are those of the header."""
    memory = pynvml.c_nvmlMemory_v2_t()
    for version in (0, pynvml.nvmlMemory_v2 + 1, 3 << 24 | 40):
        memory.version = version
        assert hgx.nvmlDeviceGetMemoryInfo_v2(gpu(), byref(memory)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    fabric = pynvml.c_nvmlGpuFabricInfo_v3_t()
    fabric.version = 1 << 24 | 40
    assert hgx.nvmlDeviceGetGpuFabricInfoV(gpu(), byref(fabric)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_both_layouts_of_fabric_information_are_filled(hgx: Any) -> None:
    """Version 2 ends before the health summary, and nothing is written behind its end."""
    second, third = pynvml.c_nvmlGpuFabricInfo_v2_t(), pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu(), byref(second))
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu(), byref(third))
    assert (second.state, third.state, third.healthSummary) == (3, 3, 1)
    version_2_in_a_larger_buffer = pynvml.c_nvmlGpuFabricInfo_v3_t()
    version_2_in_a_larger_buffer.version = pynvml.nvmlGpuFabricInfo_v2
    version_2_in_a_larger_buffer.healthSummary = 77
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu(), byref(version_2_in_a_larger_buffer))
    assert version_2_in_a_larger_buffer.healthSummary == 77


def test_field_values_fail_one_by_one(hgx: Any) -> None:
    """The call succeeds; each value carries its own code."""
    state = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
    values = pynvml.nvmlDeviceGetFieldValues(
        gpu(), [(state, 0), (state, 18), (pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0), 9999]
    )
    codes = [value.nvmlReturn for value in values]
    assert codes == [0, pynvml.NVML_ERROR_INVALID_ARGUMENT, 0, pynvml.NVML_ERROR_INVALID_ARGUMENT]
    assert (values[0].value.uiVal, values[2].value.uiVal) == (1, 18)
    assert hgx.nvmlDeviceGetFieldValues(gpu(), 0, byref(values)) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_links_end_where_the_gpu_ends(hgx: Any) -> None:
    """INVALID_ARGUMENT past the last link."""
    assert pynvml.nvmlDeviceGetNvLinkState(gpu(), 17) == 1
    for link in (18, 36, 1000):
        assert error_of(pynvml.nvmlDeviceGetNvLinkState, gpu(), link) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_gpu_without_nvlink_does_not_support_the_question(library: FakeNvml) -> None:
    """NOT_SUPPORTED from the first link on."""
    with library.loaded(machine("pcie_l40s")):
        pynvml.nvmlInit()
        assert error_of(pynvml.nvmlDeviceGetNvLinkState, gpu(), 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
        pynvml.nvmlShutdown()


def test_far_ends_read_as_on_a_switch_box(hgx: Any) -> None:
    """A switch by type, and all ones for an address that is not on PCI."""
    assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(), 0) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    assert pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(), 0).busId == "FFFFFFFF:FF:FF.0"


def test_pci_address_comes_in_both_spellings(hgx: Any) -> None:
    """Eight digits of domain, and the old four."""
    info = pynvml.nvmlDeviceGetPciInfo_v3(gpu(1))
    assert (info.busId, info.busIdLegacy, info.bus) == ("00000000:3B:00.0", "0000:3B:00.0", 0x3B)


def test_affinity_masks_are_as_long_as_asked_for(hgx: Any) -> None:
    """Words beyond the machine are zero; no words, or an unknown scope, are refused."""
    assert list(pynvml.nvmlDeviceGetMemoryAffinity(gpu(7), 2, pynvml.NVML_AFFINITY_SCOPE_NODE)) == [2, 0]
    words = (c_ulong * 1)()
    assert hgx.nvmlDeviceGetMemoryAffinity(gpu(), 0, words, 0) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert hgx.nvmlDeviceGetMemoryAffinity(gpu(), 1, words, c_uint(2)) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_peer_access_knows_five_questions(hgx: Any) -> None:
    """The sixth is INVALID_ARGUMENT."""
    assert [pynvml.nvmlDeviceGetP2PStatus(gpu(0), gpu(1), cap) for cap in range(5)] == [0] * 5
    assert error_of(pynvml.nvmlDeviceGetP2PStatus, gpu(0), gpu(1), 5) == pynvml.NVML_ERROR_INVALID_ARGUMENT


@pytest.mark.slow
def test_missing_symbols_are_really_missing(library: FakeNvml) -> None:
    """The binding itself finds no function, as with an old driver."""
    with library.loaded(machine("old_driver")):
        pynvml.nvmlInit()
        assert not hasattr(pynvml.nvmlLib, "nvmlDeviceGetGpuFabricInfoV")
        assert error_of(pynvml.nvmlDeviceGetMigMode, gpu()) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        pynvml.nvmlShutdown()


def test_lost_gpu_answers_every_call_with_lost(library: FakeNvml) -> None:
    """Its handle is given out, and nothing else; pairs are lost from both sides."""
    with library.loaded(machine("lost_gpu")):
        pynvml.nvmlInit()
        for call in (pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetPciInfo, pynvml.nvmlDeviceGetEccMode):
            assert error_of(call, gpu(3)) == pynvml.NVML_ERROR_GPU_IS_LOST
        for a, b in ((0, 3), (3, 0)):
            assert error_of(pynvml.nvmlDeviceGetP2PStatus, gpu(a), gpu(b), 2) == pynvml.NVML_ERROR_GPU_IS_LOST
        pynvml.nvmlShutdown()


@pytest.fixture
def own_machine(library: FakeNvml, tmp_path: Path) -> Iterator[Path]:
    """Return the description of an HGX H100 that this test may change, with NVML initialised on it."""
    description = tmp_path / "own.nvml"
    description.write_text(machine("hgx_h100").read_text())
    with library.loaded(description):
        pynvml.nvmlInit()
        yield description
        pynvml.nvmlShutdown()


def test_event_comes_once_to_each_set_that_waits_for_its_gpu(own_machine: Path) -> None:
    """A set gets what happens after it was made; an event of a GPU that it is not registered for is none of its business."""
    first, second = pynvml.nvmlEventSetCreate(), pynvml.nvmlEventSetCreate()
    for events in (first, second):
        pynvml.nvmlDeviceRegisterEvents(
            pynvml.nvmlDeviceGetHandleByIndex(3), pynvml.nvmlEventTypeXidCriticalError, events
        )
    own_machine.with_name("own.nvml.xids").write_text("2 31\n3 79\n")
    assert [pynvml.nvmlEventSetWait_v2(events, 1000).eventData for events in (first, second)] == [79, 79]
    assert error_of(pynvml.nvmlEventSetWait_v2, first, 20) == pynvml.NVML_ERROR_TIMEOUT


def test_every_initialisation_reads_the_machine_anew(own_machine: Path) -> None:
    """What has changed since is true for all callers, also while another one holds the library."""
    with own_machine.open("a") as description:
        description.write("fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST\n")
    assert error_of(pynvml.nvmlDeviceGetHandleByIndex, 3) == 0
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert error_of(pynvml.nvmlDeviceGetHandleByIndex, 3) == pynvml.NVML_ERROR_GPU_IS_LOST
