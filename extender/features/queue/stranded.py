"""Notices pods that are pinned to a node which has not existed for a while: only a new pod can go elsewhere. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.kit.lasting import Lasting

PATIENCE_SECONDS: Final = 60.0
"""A node that starts again may be deleted and created."""


@dataclass(slots=True)
class StrandedPods:
    """Stranded pods, and since when each is."""

    state: ClusterState
    _lasting: Lasting[str] = field(default_factory=Lasting)
    """By UID."""

    def long_since(self, now: float) -> list[GpuPod]:
        """Return the pods whose node has been missing for too long; `now` is in monotonic seconds."""
        stranded = {
            pod.uid: pod
            for pod in self.state.indexes.waiting.nominated.values()
            if pod.pinned_to and pod.pinned_to not in self.state.views
        }
        return [
            stranded[uid]
            for uid, seconds in self._lasting.seconds(stranded, now).items()
            if seconds >= PATIENCE_SECONDS
        ]

    def forget(self) -> None:
        """Forget since when pods are stranded: nobody has looked in between."""
        self._lasting.forget()
