"""Which nodes kube-scheduler would let a pod have, as far as labels and taints say: for plans that are made before it looks.

The rest of its rules is not repeated here. Pods to which others apply are not planned ahead.
"""

from __future__ import annotations

from extender.cluster.objects.kinds import KEEPS_AWAY, Node, Pod, Taint, Toleration


def is_plain(pod: Pod) -> bool:
    """Whether labels and taints, and what nodes have left, are all that says where the pod may be, or had better be."""
    spec = pod.spec
    bound = (volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes or ())
    return not (spec.affinity or spec.topology_spread_constraints or spec.resource_claims or any(bound))


def may_go(pod: Pod, node: Node) -> bool:
    """Whether the node has the labels that the pod selects, and no taint that it does not put up with."""
    labels, wanted = node.metadata.labels or {}, pod.spec.node_selector or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    tolerations = pod.spec.tolerations or ()
    taints = (taint for taint in node.spec.taints or () if taint.effect in KEEPS_AWAY)
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == (taint.value or "")
