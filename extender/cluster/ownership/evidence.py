"""What is known beyond a node's own annotations of the claims on it, and of those whom its agent saw with GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from extender.cluster.caches.node_cache import KnownNode
from extender.cluster.caches.pod_cache import PodCache
from extender.cluster.caches.resource_claims import ResourceClaims
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.ownership.first_reports import FirstReports
from extender.cluster.ownership.later_reports import LaterReports
from extender.cluster.ownership.standing import Standing, standing_of_pod, standing_of_tombstone
from topology.annotations.records import Claim, Holder, Ledger


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it about one node, as of one version of the node."""

    known: KnownNode
    pods: PodCache
    first_reports: FirstReports
    later_reports: LaterReports
    claims: ResourceClaims

    def standing(self, claim: Claim) -> Standing:
        """Judge a claim of the node's ledger."""
        node, ledger = self.known, self.known.payloads.ledger.value
        reported_free = self.later_reports.shows_free(node, claim) or self._is_replaced(claim)
        if pod := self.pods.get(claim.uid):
            standing = standing_of_pod(pod, node.name, reported_free=reported_free)
        else:
            standing = self._standing_of_tombstone(claim, ledger, reported_free=reported_free)
        if standing is Standing.FREE and self.claims.may_hold(claim.namespace, claim.uid, claim.gpu):
            return Standing.CLAIMED
        if standing is Standing.PENDING and self.claims.holds(claim.namespace, claim.uid, claim.gpu):
            return Standing.CLAIMED
        return standing

    def _standing_of_tombstone(self, claim: Claim, ledger: Ledger | None, *, reported_free: bool) -> Standing:
        node = self.known
        return standing_of_tombstone(
            self.pods.tombstone(claim.uid),
            node.name,
            other_incarnation=ledger is not None and ledger.node_uid not in ("", node.node.metadata.uid),
            reported_free=reported_free,
        )

    def _is_replaced(self, claim: Claim) -> bool:
        """Whether all shares that are seen under the name of a claim's pod, which is gone, are those of the pod that has it now.

        Two pods of one name may share one GPU, and then a report never shows the end of the first.
        """
        namesake = self.pods.find(claim.namespace, claim.name) if claim.memory_gib is not None else None
        if namesake is None or namesake.uid == claim.uid:
            return False
        if not namesake.shares or not self.later_reports.has_replaced(self.known, namesake, claim):
            return False
        observed = self.known.report.observed
        seen = (who for of in observed.shared.values() for who in of) if observed else ()
        theirs = sum(who.parts for who in seen if (who.namespace, who.name) == namesake.key)
        return theirs == namesake.listed_gib

    def is_stale(self, holder: Holder) -> bool:
        """Whether no such pod runs on the node any more as the agent saw there."""
        return self.pods.is_stale(holder, self.known.name)

    def is_about(self, pod: GpuPod, gpus: frozenset[str]) -> bool:
        """Whether the GPUs that are reported under a pod's name are certainly its own."""
        return self.first_reports.is_about(pod.uid, gpus, self.known.report.writes) or self.pods.is_alone(pod)

    def has_replaced(self, pod: GpuPod, claim: Claim) -> bool:
        """Whether the pod ran by the time of the agent's look, and the claim's, of the same name, was gone."""
        return self.later_reports.has_replaced(self.known, pod, claim)
