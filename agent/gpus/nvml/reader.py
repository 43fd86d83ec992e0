"""Read the facts through `nvidia-ml-py`; what is watched over time is in `counters`.

It turns NVML's numbers, structs and exceptions into our values and knows the binding's traps; it decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Any
from uuid import UUID

import pynvml

from agent.errors import NvmlUnavailable
from agent.gpus.facts import (
    Answer,
    Fabric,
    FabricHealth,
    FabricState,
    FabricTrouble,
    FarEnd,
    Gap,
    GpuFacts,
    GpuMemory,
    GpuProcess,
    Known,
    MigDevice,
    Missing,
    NvLink,
    NvmlFacts,
    P2pStatus,
    PairFacts,
    RemappedRows,
)
from agent.gpus.nvml.answers import ask, code_of, looked_up, mapped, within
from agent.gpus.nvml.counters import watched
from agent.gpus.nvml.mig_slices import read_mig_devices
from topology.node.links import PciePath

_UNAVAILABLE = {
    "LIBRARY_NOT_FOUND": "no NVIDIA driver: libnvidia-ml.so.1 is not installed here",
    "DRIVER_NOT_LOADED": "no NVIDIA driver: the kernel module is not loaded",
    "LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated: its library and kernel module do not match",
    "NO_PERMISSION": "no permission to talk to the NVIDIA driver",
}
_PATHS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: PciePath.INTERNAL,
    pynvml.NVML_TOPOLOGY_SINGLE: PciePath.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: PciePath.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: PciePath.PHB,
    pynvml.NVML_TOPOLOGY_NODE: PciePath.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: PciePath.SYS,
}
_FAR_ENDS = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: FarEnd.GPU,
    pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: FarEnd.BRIDGE,
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: FarEnd.SWITCH,
    pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN: FarEnd.UNKNOWN,
}
_FABRIC_STATES = dict(enumerate(FabricState))
_FABRIC_HEALTHS = {int(health): health for health in FabricHealth}
_FABRIC_TROUBLES = {
    FabricTrouble.ROUTE: (4, pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE),
    FabricTrouble.MANAGER: (14, pynvml.NVML_GPU_FABRIC_HEALTH_MASK_GFM_STATE_DISCONNECTED),
    FabricTrouble.BANDWIDTH: (0, pynvml.NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE),
}
"""By the place of two bits in the mask, and what they say then."""
_P2P_STATUSES = dict(enumerate(P2pStatus))
_P2P_READ, _P2P_WRITE, _P2P_NVLINK = range(3)  # the binding's NVML_P2P_CAPS_INDEX_READ is the tuple (0,)
_LINK_UP = {pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP}
_NUMA_WORDS, _CPU_WORDS = 16, 128
"""Bit masks for 1,024 NUMA nodes and 8,192 CPUs, as many as Linux is built for."""
_MAX_NUMA_NODE = 64 * _NUMA_WORDS - 1
_MAX_MEMORY_BYTES = 1 << 50
_MAX_MINOR = (1 << 20) - 1
"""By Linux."""
_NO_INSTANCE = 0xFFFFFFFF
_TEXT, _UUID = re.compile(r"[ -~]+"), re.compile(r"[!-~]+")
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.[0-7]", re.IGNORECASE)


def read_nvml() -> NvmlFacts:
    """Return the facts of now; raises `NvmlUnavailable`.

    NVML is shut down again before this returns: an agent that kept it open would keep the driver from being unloaded.
    """
    with opened():
        return _read()


def read_processes(gpus: Collection[str]) -> Mapping[str, Answer[tuple[GpuProcess, ...]]]:
    """Return UUID → who computes on that GPU now; raises `NvmlUnavailable`."""
    with opened():
        handles = {uuid: ask(pynvml.nvmlDeviceGetHandleByUUID, uuid) for uuid in gpus}
        return {
            uuid: _processes(handle.value) if isinstance(handle, Known) else handle for uuid, handle in handles.items()
        }


@contextmanager
def opened() -> Iterator[None]:
    """Keep NVML initialised meanwhile, once more if it is already; raises `NvmlUnavailable`."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise unavailable(error) from error
    try:
        yield
    finally:
        ask(pynvml.nvmlShutdown)


def _read() -> NvmlFacts:
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise unavailable(error) from error
    handles = [ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    indexed = [(index, handle.value) for index, handle in enumerate(handles) if isinstance(handle, Known)]
    return NvmlFacts(
        driver_version=_readable(ask(pynvml.nvmlSystemGetDriverVersion)),
        cuda_version=mapped(
            ask(pynvml.nvmlSystemGetCudaDriverVersion_v2), lambda version: f"{version // 1000}.{version % 1000 // 10}"
        ),
        gpus=tuple(mapped(handle, _gpu) for handle in handles),
        pairs={(a, b): _pair(first, second) for (a, first), (b, second) in combinations(indexed, 2)},
    )


def _gpu(handle: Any) -> GpuFacts:
    nvlinks, memory = _nvlinks(handle), _memory(handle)
    mig_enabled = _current(ask(pynvml.nvmlDeviceGetMigMode, handle), pynvml.NVML_DEVICE_MIG_ENABLE)
    return GpuFacts(
        uuid=_readable(ask(pynvml.nvmlDeviceGetUUID, handle), _UUID),
        model=_readable(ask(pynvml.nvmlDeviceGetName, handle)),
        pci=_pci(ask(pynvml.nvmlDeviceGetPciInfo_v3, handle)),
        minor=within(ask(pynvml.nvmlDeviceGetMinorNumber, handle), 0, _MAX_MINOR),
        memory=memory,
        compute_capability=ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        pcie_generation=within(ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle), 1, 15),
        pcie_width=within(ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle), 1, 64),
        mig_enabled=mig_enabled,
        slices=_slices(handle, mig_enabled, memory),
        ecc_enabled=_current(ask(pynvml.nvmlDeviceGetEccMode, handle), pynvml.NVML_FEATURE_ENABLED),
        numa_nodes=_bits(ask(pynvml.nvmlDeviceGetMemoryAffinity, handle, _NUMA_WORDS, pynvml.NVML_AFFINITY_SCOPE_NODE)),
        cpus=_bits(ask(pynvml.nvmlDeviceGetCpuAffinity, handle, _CPU_WORDS)),
        memory_numa_node=within(ask(pynvml.nvmlDeviceGetNumaNodeId, handle), 0, _MAX_NUMA_NODE),
        remapped_rows=mapped(
            ask(pynvml.nvmlDeviceGetRemappedRows, handle),
            lambda rows: RemappedRows(bool(rows[2]), bool(rows[3]), rows[0], rows[1]),
        ),
        page_retirement_pending=mapped(ask(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle), bool),
        processes=_processes(handle),
        fabric=_fabric(handle),
        nvlinks=nvlinks,
        watched=watched(handle, nvlinks),
    )


def _slices(handle: Any, mig_enabled: Answer[bool], memory: Answer[GpuMemory]) -> Answer[tuple[MigDevice, ...]]:
    if mig_enabled != Known(True):
        lost = isinstance(mig_enabled, Missing) and mig_enabled.gap is not Gap.UNSUPPORTED
        return mapped(mig_enabled, lambda _: ()) if lost else Known(())
    return read_mig_devices(handle, memory.value.total_bytes) if isinstance(memory, Known) else memory


def _processes(handle: Any) -> Answer[tuple[GpuProcess, ...]]:
    answer = ask(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    return mapped(answer, lambda running: tuple(map(_process, running)))


def _process(process: Any) -> GpuProcess:
    instance = process.gpuInstanceId, process.computeInstanceId
    return GpuProcess(
        process.pid, _command(process.pid), None if _NO_INSTANCE in instance else instance, process.usedGpuMemory
    )


def _command(pid: int) -> str:
    name = _readable(ask(pynvml.nvmlSystemGetProcessName, pid))
    return str(name.value) if isinstance(name, Known) else ""


def _pair(first: Any, second: Any) -> PairFacts:
    def p2p(index: int) -> Answer[P2pStatus]:
        return looked_up(ask(pynvml.nvmlDeviceGetP2PStatus, first, second, index), _P2P_STATUSES)

    path = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
    return PairFacts(looked_up(path, _PATHS), p2p(_P2P_READ), p2p(_P2P_WRITE), p2p(_P2P_NVLINK))


def _memory(handle: Any) -> Answer[GpuMemory]:
    answer = ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if isinstance(answer, Missing) and answer.gap is Gap.UNSUPPORTED:  # version 2 came with driver 510
        answer = ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if isinstance(answer, Known) and not 0 < answer.value.total <= _MAX_MEMORY_BYTES:
        return Missing(Gap.UNSUPPORTED, "OUT_OF_RANGE")
    return mapped(
        answer,
        lambda memory: GpuMemory(memory.total, min(memory.used, memory.total), getattr(memory, "reserved", None)),
    )


def _fabric(handle: Any) -> Answer[Fabric]:
    answer: Answer[Any] = Known(None)
    for layout, function in (
        (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlGpuFabricInfo_t, pynvml.nvmlDeviceGetGpuFabricInfo),
    ):
        info = layout()
        answer = ask(function, handle, pynvml.byref(info))
        if isinstance(answer, Known):
            return _fabric_of(info)
        if answer.code not in {"FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"}:
            break
    return answer


def _fabric_of(info: Any) -> Answer[Fabric]:
    cluster = UUID(bytes=bytes(info.clusterUuid))
    summary, mask = getattr(info, "healthSummary", 0), getattr(info, "healthMask", 0)
    return mapped(
        looked_up(Known(info.state), _FABRIC_STATES),
        lambda state: Fabric(
            state=state,
            status="SUCCESS" if info.status == pynvml.NVML_SUCCESS else code_of(info.status),
            cluster_uuid=str(cluster) if cluster.int else None,
            clique_id=info.cliqueId,
            health=_FABRIC_HEALTHS.get(summary, FabricHealth.UNTOLD),
            troubles=tuple(trouble for trouble, (shift, sign) in _FABRIC_TROUBLES.items() if mask >> shift & 3 == sign),
        ),
    )


def _nvlinks(handle: Any) -> Answer[tuple[NvLink, ...]]:
    links = []
    states = _nvlink_states(handle)
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = states.get(number) or mapped(ask(pynvml.nvmlDeviceGetNvLinkState, handle, number), bool)
        if isinstance(active, Missing):
            if active.code == "INVALID_ARGUMENT":
                break  # documented: past the last link
            if active.gap is Gap.LOST or active.code == "FUNCTION_NOT_FOUND":
                return active
            if active.gap is Gap.UNSUPPORTED:
                continue  # no NVLink at all, or one that a guest must not see
        links.append(_nvlink(handle, number, active))
    return Known(tuple(links))


def _nvlink_states(handle: Any) -> Mapping[int, Known[bool]]:
    """Ask for all states at once, through the field that Hopper and later answer; a link left out has to be asked alone."""
    field = pynvml.NVML_FI_DEV_NVLINK_GET_STATE
    answer = ask(
        pynvml.nvmlDeviceGetFieldValues, handle, [(field, number) for number in range(pynvml.NVML_NVLINK_MAX_LINKS)]
    )
    return {
        number: Known(value.value.uiVal in _LINK_UP)
        for number, value in enumerate(answer.value if isinstance(answer, Known) else ())
        if value.nvmlReturn == pynvml.NVML_SUCCESS
    }


def _nvlink(handle: Any, number: int, active: Answer[bool]) -> NvLink:
    if active != Known(True):
        return NvLink(number, active, Known(FarEnd.UNKNOWN), None)
    far_end = looked_up(ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number), _FAR_ENDS)
    remote = _pci(ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number))
    return NvLink(number, active, far_end, remote.value if isinstance(remote, Known) else None)


def unavailable(error: Any) -> NvmlUnavailable:
    """Return NVML's error as ours."""
    code = code_of(error.value)
    return NvmlUnavailable(code, _UNAVAILABLE.get(code, "NVML does not work"))


def _current(answer: Answer[Sequence[int]], enabled: int) -> Answer[bool]:
    return mapped(answer, lambda modes: modes[0] == enabled)


def _readable(answer: Answer[str], form: re.Pattern[str] = _TEXT) -> Answer[str]:
    if isinstance(answer, Known) and not form.fullmatch(answer.value):
        return Missing(Gap.FAILED, "UNREADABLE")
    return answer


def _bits(answer: Answer[Sequence[int]]) -> Answer[tuple[int, ...]]:
    if isinstance(answer, Missing):
        return answer
    numbers = (64 * word + bit for word, bits in enumerate(answer.value) for bit in range(64) if bits >> bit & 1)
    bits = tuple(numbers)
    return Known(bits) if bits else Missing(Gap.UNSUPPORTED, "EMPTY")


def _pci(answer: Answer[Any]) -> Answer[str]:
    """Spell an address as NVML spells a GPU's; what is none is empty or all ones, as for many a switch."""
    if isinstance(answer, Missing):
        return answer
    match = _PCI.fullmatch(answer.value.busId)
    domain, bus, device = (int(part, 16) for part in match.groups()) if match else (0, 0, 0xFF)
    if device > 31:  # PCI has five bits for it
        return Missing(Gap.UNSUPPORTED, "NOT_PCI")
    return Known(f"{domain:08X}:{bus:02X}:{device:02X}.0")
