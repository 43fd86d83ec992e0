"""What a process remembers of each pod, and may lose: nothing that is safe depends on it, and a restart forgets it.

Holds and tombstones are not here, because correctness depends on them.
"""

from __future__ import annotations

from typing import Final

from extender.cluster.candidates.gangs import Gangs
from extender.cluster.candidates.offers import Offers
from extender.cluster.candidates.refusals import Refusals
from extender.cluster.candidates.setbacks import Setbacks
from extender.cluster.objects.gpu_pods import GpuPod, has_ended_unstarted, owner_of
from extender.cluster.ownership.doubtful_claims import DoubtfulClaims
from extender.cluster.ownership.first_reports import FirstReports
from extender.kit.backoff import Backoff, Pauses

DROP_AGAIN: Final = Pauses(30.0, 60.0)


class PodMemory:
    """The tables by UID, which all forget a pod at the same moment."""

    def __init__(self) -> None:
        self.offers = Offers()
        self.refusals = Refusals()
        self.setbacks = Setbacks()
        self.claim_drops = Backoff(DROP_AGAIN)
        """Attempts to drop claims on other nodes; until the next one filter offers only the nodes where these are."""
        self.doubtful_claims = DoubtfulClaims()
        self.gangs = Gangs()
        """PodGroups, as kube-scheduler tries their members together."""
        self.first_reports = FirstReports()

    def bound(self, pod: GpuPod, node: str, *, is_news: bool) -> None:
        """Forget what a pod waited for; `is_news` unless the pod came with the first list."""
        self._forget(pod.uid)
        self.setbacks.forget(pod.uid)
        if has_ended_unstarted(pod.pod):  # in the first list it may be long ago
            self.setbacks.end_unstarted(pod.uid, owner_of(pod.pod), node, is_news=is_news)

    def gone(self, uid: str) -> None:
        """Forget a pod."""
        self._forget(uid)
        self.offers.forget(uid)
        self.setbacks.forget(uid, is_gone=True)
        self.first_reports.forget(uid)

    def _forget(self, uid: str) -> None:
        self.refusals.forget(uid)
        self.claim_drops.forget(uid)
        self.doubtful_claims.forget(uid)
        self.gangs.forget(uid)
