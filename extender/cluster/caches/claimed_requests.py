"""What pods request by ResourceClaims, where a feature allocates these: it reads the claims, and says it here.

Without such a feature no pod is kept, and none requests anything by its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from extender.cluster.objects.gpu_pods import ClaimedRequest
from extender.cluster.objects.kinds import Pod

Reader = Callable[[Pod], ClaimedRequest | None]
"""Reads the claims of one pod; `None`: none of them is the feature's, or they do not exist yet."""


class ClaimedRequests:
    """The pods with ResourceClaims, and who reads these."""

    def __init__(self) -> None:
        self.reader: Reader | None = None
        """The feature's; `None`: nobody allocates ResourceClaims here."""
        self.fits: Callable[[str, str], bool] = lambda uid, node: True
        """Whether all free devices of a node suit a pod, by its UID: the planner chooses among them by links alone."""
        self._pods: dict[str, Pod] = {}
        """By UID, in the newest version; also those whose claims do not exist yet."""

    def has(self, pod: Pod) -> bool:
        """Whether what the pod requests depends on ResourceClaims."""
        return self.reader is not None and (bool(pod.spec.resource_claims) or pod.metadata.uid in self._pods)

    def read(self, pod: Pod) -> ClaimedRequest | None:
        """Return what a pod requests by its claims, as they are now."""
        if self.reader is None or not pod.spec.resource_claims:
            return None
        self._pods[pod.metadata.uid] = pod
        return self.reader(pod)

    def get(self, uid: str) -> Pod | None:
        """Return a pod with claims by UID."""
        return self._pods.get(uid)

    def naming(self, namespace: str, claim: str) -> list[str]:
        """Return the UIDs of the pods that name an existing claim."""
        return [
            uid
            for uid, pod in self._pods.items()
            if pod.metadata.namespace == namespace
            and any(named.resource_claim_name == claim for named in pod.spec.resource_claims or ())
        ]

    @property
    def uids(self) -> list[str]:
        """UIDs of all pods with claims."""
        return [*self._pods]

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone."""
        self._pods.pop(uid, None)

    def keep_only(self, uids: Collection[str]) -> None:
        """Drop all pods but these."""
        self._pods = {uid: pod for uid, pod in self._pods.items() if uid in uids}
