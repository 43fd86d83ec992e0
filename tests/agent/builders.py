"""Build facts, reports and ports without NVML and without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agent.errors import ApiError
from agent.gpus.discovery import NodeDiscovery
from agent.gpus.facts import Gap, GpuFacts, Known, Missing, NvmlFacts, Watched
from topology.node.links import PciePath
from topology.node.model import Gpu, Link, NodeTopology
from topology.node.status import GpuStatus, NodeGpuStatus

UNSUPPORTED = Missing(Gap.UNSUPPORTED, "NOT_SUPPORTED")


def gpu_facts(**known: Any) -> GpuFacts:
    """Return a GPU of which NVML says nothing but this."""
    watched = {fact.name: known.pop(fact.name, UNSUPPORTED) for fact in fields(Watched)}
    plain = {fact.name: UNSUPPORTED for fact in fields(GpuFacts)}
    return GpuFacts(**(plain | {"watched": Watched(**watched)} | known))


def machine_of(*uuids: str) -> NvmlFacts:
    """Return a machine of unwired GPUs."""
    return NvmlFacts(UNSUPPORTED, UNSUPPORTED, tuple(Known(gpu_facts(uuid=Known(uuid))) for uuid in uuids), {})


def discovery(
    *, gpus: int = 2, healthy: bool = True, memory_used_gib: int = 0, reason: str | None = None
) -> NodeDiscovery:
    """Return a small node; `reason` makes its pairs differ, so that a large one has a large payload."""
    topology = NodeTopology(
        gpus=tuple(Gpu(index, f"GPU-{index}", "NVIDIA L4") for index in range(gpus)),
        links=tuple(
            Link(a, b, path=PciePath.PIX, reason=reason and f"{reason} {a} {b}")
            for a in range(gpus)
            for b in range(a + 1, gpus)
        ),
    )
    return NodeDiscovery(
        topology,
        NodeGpuStatus(0, tuple(GpuStatus(gpu.uuid, healthy, (), memory_used_gib) for gpu in topology.gpus)),
    )


class FakeNode:
    """A Node object in memory: keeps annotations, counts calls, and fails on demand."""

    def __init__(self, annotations: Mapping[str, str] | None = None) -> None:
        self.annotations = dict(annotations or {})
        self.writes: list[Mapping[str, str]] = []
        self.reads = 0
        self.failure: ApiError | None = None

    def read(self) -> Mapping[str, str]:
        self.reads += 1
        if self.failure:
            raise self.failure
        return dict(self.annotations)

    def write(self, annotations: Mapping[str, str]) -> Mapping[str, str]:
        if self.failure:
            raise self.failure
        self.writes.append(annotations)
        self.annotations |= annotations
        return dict(self.annotations)
