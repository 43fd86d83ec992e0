"""Whether a node's agent has looked since a pod was known to be gone, and what that look shows of the pod's GPUs.

A baseline is the report that stood on the node at a live read which followed the news. The next report may have been under way
by then, from a look before the pod even started. So a later one has to show the end of what the baseline shows, or name a
later version of the node. Otherwise it takes one more report, as an agent sends them one after the other. An agent that
does not observe containers shows nothing; then its next write is all that will ever be told.

A report knows names only. So a GPU that is held under the name of a pod that is gone may belong to a namesake. There is
one exception: another pod of that name ran there by the time of the baseline. Then the scan found all GPUs of that pod.
If it found no others, none is left of the pod that is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from extender.cluster.caches.node_cache import KnownNode, Report
from extender.cluster.objects.gpu_pods import GpuPod
from topology.annotations import keys
from topology.annotations.records import Claim, is_later

RunsAs = Callable[[tuple[str, str], str], str | None]
"""Returns the UID of the pod with a namespace and name whose containers run on a node."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What may be from before a pod was gone."""

    report: Report
    namesake: str | None
    """UID of the pod that ran there by then under the same name."""

    def precedes(self, report: Report) -> bool:
        """Whether a report is of a look that began later, whatever it shows."""
        version = report.observed.node_version if report.observed else ""
        return is_later(version, self.report.node_version) or report.writes > self.report.writes + 1


class LaterReports:
    """By node and pod that is gone."""

    def __init__(self, runs_as: RunsAs) -> None:
        self._runs_as = runs_as
        self._all: dict[tuple[str, str], Baseline] = {}

    def put(self, node: KnownNode, claim: Claim) -> None:
        """Take the node's report as it is now for the last one that may be from before the claim's pod was gone."""
        self._all[node.name, claim.uid] = Baseline(node.report, self._namesake(node, claim))

    def drop(self, node: str, uid: str) -> None:
        """Forget a pod that has no claims there any more."""
        self._all.pop((node, uid), None)

    def serves(self, node: KnownNode, claim: Claim) -> bool:
        """Whether later reports will decide; not if the agent has begun to count anew, or a namesake has begun to run."""
        baseline = self._all.get((node.name, claim.uid))
        if baseline is None or node.report.writes < baseline.report.writes:
            return False
        return self._namesake(node, claim) in (None, baseline.namesake)

    def is_asked(self, node: KnownNode, claim: Claim) -> bool:
        """Whether the node's agent is asked for a look that is later than the baseline."""
        baseline = self._all.get((node.name, claim.uid))
        if baseline is None or not self.serves(node, claim):
            return False
        requested, version = (node.node.metadata.annotations or {}).get(keys.LOOK, ""), baseline.report.node_version
        return requested == version or is_later(requested, version)

    def shows_free(self, node: KnownNode, claim: Claim) -> bool:
        """Whether the agent has looked since, and the GPU was not held; if it is shared, by none of the pod's name."""
        baseline = self._all.get((node.name, claim.uid))
        if baseline is None or baseline.report == node.report:
            return False
        if node.report.observed is None:
            return node.report.writes > baseline.report.writes
        if node.report.shows(claim) if claim.memory_gib is not None else claim.gpu in node.report.observed.gpus:
            return False
        return baseline.report.shows(claim) or baseline.precedes(node.report)

    def has_replaced(self, node: KnownNode, pod: GpuPod, claim: Claim) -> bool:
        """Whether the agent has looked since a pod began to run, as it still does, that has the name of the claim's."""
        baseline = self._all.get((node.name, claim.uid))
        if baseline is None or pod.uid != self._namesake(node, claim):
            return False
        return baseline.namesake == pod.uid and baseline.precedes(node.report)

    def _namesake(self, node: KnownNode, claim: Claim) -> str | None:
        return self._runs_as((claim.namespace, claim.name), node.name)
