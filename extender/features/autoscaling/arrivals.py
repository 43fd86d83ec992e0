"""Which new node answers which placeholder: then the placeholder has to go before it makes autoscalers buy a second one.

They simulate the pod that waits beside its placeholder. As soon as the new node counts, the pod may be put there first.
If both together request more than the node has, the placeholder would need yet another node. Where both fit, it stays
until the pod is bound: a node with a pod that waits for it is not taken for empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.cluster.caches.stand_ins import StandIn
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.verbs.pod_context import PodContext
from topology.errors import RequestError


@dataclass(slots=True)
class Arrivals:
    """Nodes by UID, each with the pod whose placeholder it answers; one node answers one."""

    state: ClusterState
    _answers: dict[str, str] = field(default_factory=dict)

    def answer_to(self, placeholder: StandIn, pod: GpuPod, now: Instant) -> str | None:
        """Return the name of the node that came for a pod and that its placeholder must not outlive."""
        try:
            request = PodContext.read(self.state, pod.pod, now).request
        except RequestError:
            return None
        with self.state.effort.bounded():
            groups = self.state.node_groups.would_take(request)
        together = request.gpus + (placeholder.gpus or 0)
        crowded = {group.name for group in groups if group.gpus < together}
        return self._take(crowded, placeholder.created or "", pod.uid) if crowded else None

    def _take(self, groups: set[str], since: str, uid: str) -> str | None:
        """Return the oldest node of these groups that is as new as that, and answers nobody else."""
        label, nodes = self.state.node_groups.label, self.state.nodes
        every = (node.node.metadata for name in nodes if (node := nodes.get(name)))
        came = [
            (metadata.creation_timestamp or "", metadata.name, metadata.uid)
            for metadata in every
            if (metadata.creation_timestamp or "") >= since and (metadata.labels or {}).get(label) in groups
        ]
        return next((name for _, name, node in sorted(came) if self._answers.setdefault(node, uid) == uid), None)
