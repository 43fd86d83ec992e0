"""How much of each GPU pods may share: its memory without what the driver keeps, which NVML tells and nobody guesses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import ceil

from agent.gpus.discovery import NodeDiscovery
from agent.gpus.facts import Answer, GpuFacts, GpuMemory, Known, NvmlFacts, value_of
from topology.node.model import Gpu
from topology.node.status import GpuStatus

_GIB = 1 << 30

IN_SLICES = "a GPU has MIG on"
OTHER_MODEL = "a GPU is of a model that is not to be shared"
NO_MEMORY = "the driver does not tell how much memory a GPU has"
NO_RESERVE = "the driver does not tell how much memory it keeps for itself; sharing.reserveGib can say it"
TOO_SMALL = "a GPU has no memory left to share"


@dataclass(frozen=True, slots=True)
class SharingRule:
    """Which GPUs may be shared, as configured."""

    models: tuple[str, ...] = ()
    """Globs; none: every model."""
    reserve_gib: int | None = None
    """At least so much of each is shared by nobody; `None`: what the driver keeps."""

    def applied(self, discovery: NodeDiscovery, facts: NvmlFacts, before: NodeDiscovery) -> NodeDiscovery:
        """Return a discovery that tells what may be shared; what NVML does not tell now is as it was before."""
        gpus = {gpu.uuid: gpu for gpu in discovery.topology.gpus}
        memories = {value_of(gpu_facts.uuid): gpu_facts.memory for gpu_facts in _identified(facts)}
        published = {gpu.uuid: gpu.share_gib for gpu in before.status.gpus}
        statuses, unshared = list[GpuStatus](), list[str]()
        for status in discovery.status.gpus:
            memory = memories.get(status.uuid)
            share = 0 if status.uuid not in gpus else self._gib(gpus[status.uuid], memory, published.get(status.uuid))
            unshared += [share] if isinstance(share, str) else []
            statuses.append(replace(status, share_gib=share if isinstance(share, int) and share else None))
        return replace(
            discovery,
            status=replace(discovery.status, gpus=tuple(statuses)),
            unshared=tuple(sorted(set(unshared))),
        )

    def _gib(self, gpu: Gpu, answer: Answer[GpuMemory] | None, before: int | None) -> int | str:
        """Return how many GiB, or why none."""
        if gpu.mig_enabled:
            return IN_SLICES
        if self.models and not any(fnmatchcase(gpu.model.lower(), glob.lower()) for glob in self.models):
            return OTHER_MODEL
        if not isinstance(answer, Known):
            return before or NO_MEMORY
        memory = answer.value
        kept = None if memory.reserved_bytes is None else ceil(memory.reserved_bytes / _GIB)
        if kept is None and self.reserve_gib is None:
            return NO_RESERVE
        left = memory.total_bytes // _GIB - max(kept or 0, self.reserve_gib or 0)
        return left if left > 0 else TOO_SMALL


def _identified(facts: NvmlFacts) -> Iterator[GpuFacts]:
    return (gpu.value for gpu in facts.gpus if isinstance(gpu, Known))
