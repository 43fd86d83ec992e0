"""What pods request by ResourceClaims, where a feature allocates these: it reads the claims, and says it here.

Without such a feature no pod is kept, and none requests anything by its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice

from extender.cluster.objects.gpu_pods import ClaimedRequest
from extender.cluster.objects.kinds import Pod

Reader = Callable[[Pod], ClaimedRequest | None]
"""Reads the claims of one pod; `None`: none of them is the feature's, or they do not exist yet."""


class ClaimedRequests:
    """The pods with ResourceClaims, and who reads these."""

    def __init__(self) -> None:
        self.reader: Reader | None = None
        """The feature's; `None`: nobody allocates ResourceClaims here."""
        self.fits: Callable[[str, str, int], bool | None] = lambda uid, node, alternative: True
        """Whether all free devices of a node suit a pod, by its UID and the number of the request that is to be met.

        `None`: to find out takes longer than a call may, and goes on with the next one.
        The planner chooses among them by links alone.
        """
        self._pods: dict[str, Pod] = {}
        """By UID, in the newest version; also those whose claims do not exist yet."""
        self._naming: dict[tuple[str, str], dict[str, None]] = {}
        """Namespace and name of an existing claim → UIDs of the pods that name it, in the order in which they came."""

    def has(self, pod: Pod) -> bool:
        """Whether what the pod requests depends on ResourceClaims."""
        return self.reader is not None and (bool(pod.spec.resource_claims) or pod.metadata.uid in self._pods)

    def read(self, pod: Pod) -> ClaimedRequest | None:
        """Return what a pod requests by its claims, as they are now."""
        if self.reader is None or not pod.spec.resource_claims:
            return None
        self.forget(pod.metadata.uid)
        self._pods[pod.metadata.uid] = pod
        for claim in _named(pod):
            self._naming.setdefault(claim, {})[pod.metadata.uid] = None
        return self.reader(pod)

    def get(self, uid: str) -> Pod | None:
        """Return a pod with claims by UID."""
        return self._pods.get(uid)

    def naming(self, namespace: str, claim: str, most: int | None = None) -> list[str]:
        """Return the UIDs of the pods that name an existing claim, of at most so many."""
        return [*islice(self._naming.get((namespace, claim), ()), most)]

    @property
    def uids(self) -> list[str]:
        """UIDs of all pods with claims."""
        return [*self._pods]

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone."""
        pod = self._pods.pop(uid, None)
        for claim in _named(pod) if pod else ():
            uids = self._naming[claim]
            del uids[uid]
            if not uids:
                del self._naming[claim]

    def keep_only(self, uids: Collection[str]) -> None:
        """Drop all pods but these."""
        for uid in [uid for uid in self._pods if uid not in uids]:
            self.forget(uid)


def _named(pod: Pod) -> set[tuple[str, str]]:
    """Return namespace and name of the claims that a pod names, without those that are made for it."""
    names = (named.resource_claim_name for named in pod.spec.resource_claims or ())
    return {(pod.metadata.namespace, name) for name in names if name}
