"""How many GPUs the pods of each namespace hold, which a fair order of waiting pods goes by, and how many pods there are."""

from __future__ import annotations

from collections import Counter

from extender.cluster.objects.gpu_pods import GpuPod


class NamespaceUse:
    """GPUs, and shares of them, by namespace; those of pods that are bound and have not ended."""

    def __init__(self) -> None:
        self.held: Counter[str] = Counter()
        self.pods: Counter[str] = Counter()
        """Pods with GPUs by namespace, whatever they hold."""
        self._namespaces: dict[str, str] = {}
        """UID → namespace."""
        self._of: dict[str, tuple[str, int]] = {}
        """UID → namespace and GPUs."""

    def take(self, uid: str, pod: GpuPod | None) -> None:
        """Take note of the newest version of a pod; `None`: it is gone."""
        self._count(uid, pod)
        namespace, gpus = self._of.pop(uid, ("", 0))
        if gpus:
            self.held[namespace] -= gpus
            if not self.held[namespace]:
                del self.held[namespace]
        if pod is not None and pod.node is not None and not pod.ended and (gpus := pod.gpus or len(pod.shares)):
            namespace = pod.key[0]
            self._of[uid] = namespace, gpus
            self.held[namespace] += gpus

    def _count(self, uid: str, pod: GpuPod | None) -> None:
        if before := self._namespaces.pop(uid, None):
            self.pods[before] -= 1
            if not self.pods[before]:
                del self.pods[before]
        if pod is not None:
            self._namespaces[uid] = namespace = pod.key[0]
            self.pods[namespace] += 1
