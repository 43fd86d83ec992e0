"""Finds the pods that came, or changed, since all were planned. No I/O.

As long as no node has gained GPUs or CPU, the others still have no room: newcomers can be planned without them, and at once.
Memory that becomes free is not noticed before the next plan for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState

NEVER: Final = -1


@dataclass(slots=True)
class Newcomers:
    """The pods behind our gate that no plan has seen as they are now."""

    state: ClusterState
    _seen: dict[str, GpuPod] = field(default_factory=dict)
    """By UID, the pods in the versions that plans have been made for."""
    _gains: int = NEVER
    """Of the nodes, before the last plan for all pods."""

    def all_are_planned(self) -> None:
        """Take note that a plan for all pods that there are is about to be made."""
        self._seen, self._gains = dict(self.state.indexes.gates.queued), self.state.shapes.gains

    def forget(self) -> None:
        """Find none before the next plan for all pods."""
        self._gains = NEVER

    def take(self) -> list[GpuPod]:
        """Return them, with the others of their gangs, once; none where all pods have to be planned.

        Units with claims wait for that, too: a plan may have been begun for them.
        """
        if self._gains != self.state.shapes.gains:
            return []
        before, self._seen = self._seen, dict(self.state.indexes.gates.queued)
        if before == self._seen:  # most rounds, and a look at each pod costs a hundred times as much
            return []
        pods = dict[str, GpuPod]()
        for uid, pod in self._seen.items():
            if uid not in pods and not _is_same(before.get(uid), pod):
                pods |= {member.uid: member for member in self._unit_of(pod)}
        return [*pods.values()]

    def _unit_of(self, pod: GpuPod) -> list[GpuPod]:
        peers = (peer for peer in self.state.indexes.groups.beside(pod.uid) if peer.has_plan_gate)
        unit = [pod, *peers]
        return [] if any(self.state.may_be_claimed_on(member.uid) for member in unit) else unit


def _is_same(before: GpuPod | None, pod: GpuPod) -> bool:
    """Whether a pod asks for the same; its status says what came of that."""
    if before is pod:
        return True
    if before is None or before.pod.spec != pod.pod.spec:
        return False
    return (before.pod.metadata.annotations, before.pod.metadata.labels) == (
        pod.pod.metadata.annotations,
        pod.pod.metadata.labels,
    )
