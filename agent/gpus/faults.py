"""From NVML's facts about one GPU to its status: is it fit for new pods, and what should people watch.

Only a GPU that is lost, waits for a reset, has no spare memory row left, or cannot even be identified is unhealthy. What
slows a GPU down (links, fabric), or will need care at the next reset, is a reason on a healthy GPU. A GPU that needs care
is given to new pods last among equals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from math import ceil

from agent.gpus.facts import Answer, Fabric, FabricHealth, FabricState, Gap, GpuFacts, GpuMemory, Missing, value_of
from topology.node.status import GpuStatus, NodeGpuStatus

_GIB = 1 << 30
_STEPS = 16
"""Memory in use is told in sixteenths of the GPU's memory, or whole GiB on small GPUs."""


def gpu_status(
    uuid: str,
    gpu: GpuFacts,
    *,
    all_links_dead: bool = False,
    widest_twin: int = 0,
    before: GpuStatus | None = None,
) -> GpuStatus:
    """Return the status of an identified GPU; `widest_twin` is the widest PCIe link of a GPU of its model."""
    lost = next((answer.code for _, answer in _missing(gpu) if answer.gap is Gap.LOST), None)
    rows = value_of(gpu.remapped_rows)
    reasons = [_LOST.get(lost, lost)] if lost else []
    reasons += ["row remap failed"] if rows and rows.failed else []
    pending = ["row remap pending"] if rows and rows.pending else []
    pending += ["page retirement pending"] if value_of(gpu.page_retirement_pending) else []
    reasons += pending
    reasons += _fabric_reasons(value_of(gpu.fabric))
    reasons += ["all nvlinks down"] if all_links_dead else []
    reasons += _pcie_reasons(value_of(gpu.watched.pcie_width), value_of(gpu.pcie_width), widest_twin)
    reasons += sorted({f"{fact} unknown: {answer.code}" for fact, answer in _missing(gpu) if answer.gap is Gap.FAILED})
    healthy = not lost and not (rows and rows.failed)
    return GpuStatus(
        uuid=uuid,
        healthy=healthy,
        reasons=tuple(reasons),
        memory_used_gib=_memory_used_gib(value_of(gpu.memory), before.memory_used_gib if before else None),
        mig_enabled=value_of(gpu.mig_enabled),
        doubtful=healthy and bool(pending),
    )


def unidentified_status(name: str, cause: Missing) -> GpuStatus:
    """Return the status of a GPU that NVML counts and cannot name; `name` is its UUID of before, or `index-N`."""
    return GpuStatus(uuid=name, healthy=False, reasons=(_LOST.get(cause.code, f"not identified: {cause.code}"),))


def blackout_status(before: NodeGpuStatus, code: str) -> NodeGpuStatus:
    """Return the status of a node whose NVML does not answer at all: no GPU there can be given away."""
    return closed_status(before, f"nvml unavailable: {code}")


def closed_status(before: NodeGpuStatus, reason: str) -> NodeGpuStatus:
    """Return the status of a node none of whose GPUs can be given away, for one reason."""
    gpus = (replace(gpu, healthy=False, doubtful=False, reasons=(reason,)) for gpu in before.gpus)
    return NodeGpuStatus(0, tuple(gpus), before.link_faults)


def is_lost(gpu: GpuStatus) -> bool:
    """Whether NVML says that the GPU fell off the bus, or does nothing before a reset."""
    return any(word in gpu.reasons for word in _LOST.values())


_LOST = {"GPU_IS_LOST": "gpu is lost", "RESET_REQUIRED": "reset required"}


def _missing(gpu: GpuFacts) -> Iterator[tuple[str, Missing]]:
    answers: list[tuple[str, Answer[object]]] = [
        (fact.name.replace("_", " "), getattr(gpu, fact.name)) for fact in fields(gpu)
    ]
    for link in value_of(gpu.nvlinks) or ():
        answers += [("nvlinks", link.active), ("nvlinks", link.far_end)]
    return ((fact, answer) for fact, answer in answers if isinstance(answer, Missing))


def _fabric_reasons(fabric: Fabric | None) -> list[str]:
    if fabric is None or fabric.state is FabricState.NONE:
        return []
    if fabric.state is not FabricState.COMPLETED:
        return [f"fabric {fabric.state}"]
    failed = [f"fabric failed: {fabric.status}"] if fabric.status != "SUCCESS" else []
    summary = [_FABRIC_HEALTHS[fabric.health]] if fabric.health in _FABRIC_HEALTHS else []
    return failed + summary + [f"fabric {trouble}" for trouble in fabric.troubles]


_FABRIC_HEALTHS = {FabricHealth.UNHEALTHY: "fabric unhealthy", FabricHealth.LIMITED: "fabric capacity limited"}


def _pcie_reasons(now: int | None, most: int | None, widest_twin: int) -> list[str]:
    if now and most and now < most:
        return [f"pcie x{now} of x{most}"]
    return [f"pcie x{now}, others of its model x{widest_twin}"] if now and now < widest_twin else []


def _memory_used_gib(memory: GpuMemory | None, before: int | None) -> int | None:
    """Round up to a step, and step down only when a whole step is free, so that a busy GPU does not flicker."""
    if memory is None:
        return None
    step = max(1, memory.total_bytes // _STEPS // _GIB)
    used = memory.used_bytes / _GIB
    if before is not None and before - 2 * step < used <= before:
        return before
    return ceil(used / step) * step
