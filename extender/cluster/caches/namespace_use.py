"""How many GPUs the pods of each namespace hold: what a fair order of waiting pods goes by."""

from __future__ import annotations

from collections import Counter

from extender.cluster.objects.gpu_pods import GpuPod


class NamespaceUse:
    """GPUs, and shares of them, by namespace; those of pods that are bound and have not ended."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self._of: dict[str, tuple[str, int]] = {}
        """UID → namespace and GPUs."""

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        namespace, gpus = self._of.pop(uid, ("", 0))
        if gpus:
            self.held[namespace] -= gpus
            if not self.held[namespace]:
                del self.held[namespace]
        if pod is not None and pod.node is not None and not pod.ended and (gpus := pod.gpus or len(pod.shares)):
            namespace = pod.key[0]
            self._of[uid] = namespace, gpus
            self.held[namespace] += gpus
