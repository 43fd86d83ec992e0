"""Which fact of ours is which of `nvidia-smi`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.gpus.activity import Activity
from agent.gpus.facts import Answer, Fabric, FabricState, GpuFacts, NvmlFacts, value_of

_MIB = 1 << 20
_BANKS = "remapped_rows/row_remapper_histogram/row_remapper_histogram_none"
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a GPU, and where `nvidia-smi -q -x` has it."""

    name: str
    path: str
    """Below `gpu`."""
    ours: Callable[[GpuFacts], str | None]


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A fact of the node, and where `nvidia-smi -q -x` has it."""

    name: str
    path: str
    ours: Callable[[NvmlFacts], str | None]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that moves, and what `nvidia-smi --query-gpu` calls it."""

    name: str
    query: str
    unit: str
    tolerance: float | None
    """How far it may lie outside of what was read just before and after; `None`: it may move as it likes."""
    ours: Callable[[Activity], float | None]


def _mode(answer: Answer[bool], yes: str = "Enabled", no: str = "Disabled") -> str | None:
    said = value_of(answer)
    return None if said is None else yes if said else no


def _text(answer: Answer[object], unit: str = "") -> str | None:
    said = value_of(answer)
    return None if said is None else f"{said}{unit}"


def _memory(gpu: GpuFacts) -> str | None:
    memory = value_of(gpu.memory)
    return None if memory is None else f"{memory.total_bytes // _MIB} MiB"


def _rows(name: str) -> Callable[[GpuFacts], str | None]:
    def ours(gpu: GpuFacts) -> str | None:
        rows = value_of(gpu.remapped_rows)
        value = rows and getattr(rows, name)
        return None if value is None else {True: "Yes", False: "No"}[value] if isinstance(value, bool) else f"{value}"

    return ours


def _errors(kind: str, where: str) -> Callable[[GpuFacts], str | None]:
    def ours(gpu: GpuFacts) -> str | None:
        count = (value_of(gpu.watched.memory_errors) or {}).get((kind, where))
        return None if count is None else str(count)

    return ours


def _recovery(gpu: GpuFacts) -> str | None:
    """How nvidia-smi spells actions other than `None` was never seen."""
    action = value_of(gpu.watched.recovery_action)
    return None if action is None else action.name.replace("_", " ").capitalize()


def _fabric(say: Callable[[Fabric], str]) -> Callable[[GpuFacts], str | None]:
    """Of a platform without a fabric nvidia-smi says nothing."""

    def ours(gpu: GpuFacts) -> str | None:
        fabric = value_of(gpu.fabric)
        return say(fabric) if fabric and fabric.state is not FabricState.NONE else None

    return ours


NODE_FACTS = (
    NodeFact("driver", "driver_version", lambda facts: _text(facts.driver_version)),
    NodeFact("CUDA version", "cuda_version", lambda facts: _text(facts.cuda_version)),
    NodeFact("number of GPUs", "attached_gpus", lambda facts: str(len(facts.gpus))),
)
FACTS = (
    Fact("model", "product_name", lambda gpu: _text(gpu.model)),
    Fact("PCI address", "pci/pci_bus_id", lambda gpu: _text(gpu.pci)),
    Fact("memory", "fb_memory_usage/total", _memory),
    Fact("ECC mode", "ecc_mode/current_ecc", lambda gpu: _mode(gpu.ecc_enabled)),
    Fact("MIG mode", "mig_mode/current_mig", lambda gpu: _mode(gpu.mig_enabled)),
    Fact("PCIe generation", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", lambda gpu: _text(gpu.pcie_generation)),
    Fact("PCIe width", "pci/pci_gpu_link_info/link_widths/max_link_width", lambda gpu: _text(gpu.pcie_width, "x")),
    Fact("rows remapped, corrected", "remapped_rows/remapped_row_corr", _rows("after_corrected")),
    Fact("rows remapped, uncorrected", "remapped_rows/remapped_row_unc", _rows("after_uncorrected")),
    Fact("row remap waits", "remapped_rows/remapped_row_pending", _rows("pending")),
    Fact("row remap failed", "remapped_rows/remapped_row_failure", _rows("failed")),
    Fact(
        "page retirement waits",
        "retired_pages/pending_retirement",
        lambda gpu: _mode(gpu.page_retirement_pending, "Yes", "No"),
    ),
    Fact("banks without spare rows", _BANKS, lambda gpu: _text(gpu.watched.banks_without_spares, " bank(s)")),
    Fact("SRAM errors, corrected", "ecc_errors/aggregate/sram_correctable", _errors("corrected", "sram")),
    Fact("DRAM errors, corrected", "ecc_errors/aggregate/dram_correctable", _errors("corrected", "dram")),
    Fact("DRAM errors, uncorrected", "ecc_errors/aggregate/dram_uncorrectable", _errors("uncorrected", "dram")),
    Fact(
        "SRAM errors beyond the threshold",
        "ecc_errors/aggregate/sram_threshold_exceeded",
        lambda gpu: _mode(gpu.watched.sram_exceeded, "Yes", "No"),
    ),
    Fact("PCIe replays", "pci/replay_counter", lambda gpu: _text(gpu.watched.pcie_replays)),
    Fact(
        "PCIe width now",
        "pci/pci_gpu_link_info/link_widths/current_link_width",
        lambda gpu: _text(gpu.watched.pcie_width, "x"),
    ),
    Fact("asks for", "gpu_recovery_action", _recovery),
    Fact("fabric state", "fabric/state", _fabric(lambda fabric: fabric.state.title())),
    Fact("fabric status", "fabric/status", _fabric(lambda fabric: fabric.status.title())),
    Fact("fabric clique", "fabric/cliqueId", _fabric(lambda fabric: str(fabric.clique_id))),
    Fact("fabric cluster", "fabric/clusterUuid", _fabric(lambda fabric: fabric.cluster_uuid or _NO_CLUSTER)),
)
"""The UUID is what GPUs are matched by; the serial number is neither read nor written down."""


def _per(value: int | None, unit: int) -> float | None:
    return None if value is None else value / unit


FIGURES = (
    Figure("utilization", "utilization.gpu", "%", None, lambda gpu: gpu.utilization_percent),
    Figure("memory busy", "utilization.memory", "%", None, lambda gpu: gpu.memory_busy_percent),
    Figure("memory total", "memory.total", "MiB", 1, lambda gpu: _per(gpu.memory_total_bytes, _MIB)),
    Figure("memory used", "memory.used", "MiB", 16, lambda gpu: _per(gpu.memory_used_bytes, _MIB)),
    Figure("memory reserved", "memory.reserved", "MiB", 16, lambda gpu: _per(gpu.memory_reserved_bytes, _MIB)),
    Figure("temperature", "temperature.gpu", "°C", 3, lambda gpu: gpu.temperature_celsius),
    Figure("memory temperature", "temperature.memory", "°C", 3, lambda gpu: gpu.memory_temperature_celsius),
    Figure("power", "power.draw", "W", 30, lambda gpu: _per(gpu.power_milliwatts, 1000)),
    Figure("power limit", "enforced.power.limit", "W", 1, lambda gpu: _per(gpu.power_limit_milliwatts, 1000)),
    Figure("SM clock", "clocks.sm", "MHz", 105, lambda gpu: gpu.sm_clock_mhz),
    Figure("memory clock", "clocks.mem", "MHz", 105, lambda gpu: gpu.memory_clock_mhz),
)
