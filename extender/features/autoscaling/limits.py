"""How many placeholders a namespace and an owner may have: there is always room for those that have fewer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from extender.cluster.objects.gpu_pods import GpuPod, owner_of


@dataclass(slots=True)
class PlaceholderLimits:
    """The placeholders that count against one limit.

    A pod gets one while its namespace and its owner, added up, have fewer than are left of the limit. So one namespace alone gets
    half of the limit at most, and one owner less. Pods without an owner count as those of one owner of their namespace.
    """

    limit: int
    _of_namespace: Counter[str] = field(default_factory=Counter)
    _of_owner: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, namespace: str, pod: GpuPod | None) -> None:
        """Count a placeholder for a pod of this namespace; `None`: the pod is gone."""
        self._of_namespace[namespace] += 1
        self._of_owner[namespace, owner_of(pod.pod) if pod else ""] += 1

    def had_by(self, pod: GpuPod) -> tuple[int, int]:
        """Return how many the pod's namespace and its owner have."""
        namespace, _ = pod.key
        return self._of_namespace[namespace], self._of_owner[namespace, owner_of(pod.pod)]

    def refusal(self, pod: GpuPod) -> str | None:
        """Say why the pod gets none now, `None` if it may have one."""
        left = self.limit - self._of_namespace.total()
        if left <= 0:
            return f"there are {self.limit} placeholders already, which is the limit"
        of_namespace, of_owner = self.had_by(pod)
        if of_namespace + of_owner < left:
            return None
        return (
            f"its namespace has {of_namespace} of {self.limit} placeholders already, {of_owner} of them for its owner; "
            "the rest is kept for others"
        )
