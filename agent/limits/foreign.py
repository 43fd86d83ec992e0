"""Memory of a GPU that no share explains: what processes use beyond their shares, or outside of pods.

It is reported in coarse steps, and a step is taken when two scans in a row agree. So a pod that starts or ends is no
news.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, Protocol

from agent.gpus.facts import GpuFacts, GpuProcess, NvmlFacts, value_of
from agent.limits.share import GIB, Share
from topology.node.status import NodeGpuStatus

STEP_GIB: Final = 4
_UNCOUNTED_GIB = 1.0
"""Of each GPU: contexts, servers and displays that are on many."""
_EDGE_GIB = 0.5
"""By which a step has to be left."""


@dataclass(frozen=True, slots=True)
class PromisedMemory:
    """Who may use a node's GPUs, by its ledger."""

    shares: tuple[Share, ...] = ()
    whole: frozenset[str] = frozenset()
    """UUIDs of those that belong to one pod alone."""


class UsagePort(Protocol):
    """Where the driver tells what pods use of GPUs."""

    def __call__(self, shares: Collection[Share], /) -> Mapping[tuple[str, str], int]:
        """Return (pod's UID, GPU) → bytes, as far as that is told; never raises."""
        ...


class OwnerPort(Protocol):
    """Where it is told whose a process is."""

    def __call__(self, pid: int, /) -> str | None:
        """Return its pod's UID, empty outside of pods; `None` where that cannot be told."""
        ...


@dataclass(slots=True)
class _Told:
    gib: int
    before: int


@dataclass(slots=True)
class ForeignMemory:
    """One node's."""

    held: Callable[[], PromisedMemory]
    usage: UsagePort
    owner: OwnerPort
    _told: dict[str, _Told] = field(default_factory=dict)

    def marked(self, status: NodeGpuStatus, facts: NvmlFacts) -> NodeGpuStatus:
        """Return the status with what no share explains, GPU by GPU."""
        held = self.held()
        gpus = {value_of(gpu.uuid): gpu for answer in facts.gpus if (gpu := value_of(answer))}
        used = self.usage(held.shares)
        beyond = {uuid: self._of(uuid, gpu, held, used) for uuid, gpu in gpus.items() if uuid}
        return replace(
            status, gpus=tuple(replace(gpu, beyond_shares_gib=beyond.get(gpu.uuid, 0)) for gpu in status.gpus)
        )

    def _of(self, uuid: str, gpu: GpuFacts, held: PromisedMemory, used: Mapping[tuple[str, str], int]) -> int:
        memory = value_of(gpu.memory)
        if uuid in held.whole or memory is None:
            self._told.pop(uuid, None)
            return 0
        shares: Counter[str] = Counter()
        for share in held.shares:
            if share.gpu == uuid:
                shares[share.uid] += share.memory_gib * GIB
        by_cgroup = {uid: used[uid, uuid] for uid in shares if (uid, uuid) in used}
        by_process = used_by_pod(value_of(gpu.processes), self.owner)
        beyond = beyond_shares(memory.used_bytes, shares, by_cgroup, by_process)
        return self._step(uuid, beyond / GIB)

    def _step(self, uuid: str, gib: float) -> int:
        if uuid not in self._told:
            step = steps(gib)
            self._told[uuid] = _Told(step, step)
        published = self._told[uuid]
        now = _between(published.gib, steps(gib - _EDGE_GIB), steps(gib + _EDGE_GIB))
        published.gib, published.before = (
            _between(published.gib, min(now, published.before), max(now, published.before)),
            now,
        )
        return published.gib


def used_by_pod(processes: Sequence[GpuProcess] | None, owner: OwnerPort) -> Mapping[str, int] | None:
    """Return pod's UID → bytes that its processes use; `None` where that is not told of every process.

    To who does not share the host's PID namespace many drivers tell of none.
    """
    used: Counter[str] = Counter()
    if not processes:
        return None
    for process in processes:
        uid = owner(process.pid)
        if uid is None or process.memory_bytes is None:
            return None
        used[uid] += process.memory_bytes
    return used


def beyond_shares(
    used_bytes: int, shares: Mapping[str, int], by_cgroup: Mapping[str, int], by_process: Mapping[str, int] | None
) -> int:
    """Return the bytes in use that these shares do not explain.

    What a pod uses, up to its share, is explained. Where nobody tells what it uses, all of its share is: what others use in
    its place cannot be told apart then.
    """
    explained = 0
    for uid, share_bytes in shares.items():
        pod_bytes = by_cgroup.get(uid)
        if pod_bytes is None and by_process is not None:
            pod_bytes = by_process.get(uid, 0)
        explained += share_bytes if pod_bytes is None else min(pod_bytes, share_bytes)
    return max(0, used_bytes - explained)


def steps(gib: float) -> int:
    """Return an amount in steps, rounded up, but for what is on many GPUs.

    >>> [steps(gib) for gib in (0.0, 1.0, 1.1, 5.0, 5.1, 70.0)]
    [0, 0, 4, 4, 8, 72]
    """
    return max(0, ceil((gib - _UNCOUNTED_GIB) / STEP_GIB)) * STEP_GIB


def _between(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
