"""Which nodes kube-scheduler would let a pod have, as far as labels and taints say: for plans, and for answers to people.

The rest of its rules is not repeated here. Pods to which others apply are not planned ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from extender.cluster.objects.kinds import KEEPS_AWAY, Node, Pod, Taint, Toleration
from topology.placement.verdict import Reason, Rejection

CORDONED: Final = "node is cordoned"
_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_MAX_CHARACTERS: Final = 80
"""Of a label or taint that is shown."""


def is_plain(pod: Pod, *, with_claims: bool = False) -> bool:
    """Whether labels and taints, and what nodes have left, are all that says where the pod may be, or had better be.

    `with_claims`: whether its ResourceClaims are part of what is planned for it.
    """
    spec = pod.spec
    bound = (volume.persistent_volume_claim or volume.ephemeral for volume in spec.volumes or ())
    has_claims = bool(spec.resource_claims) and not with_claims
    return not (spec.affinity or spec.topology_spread_constraints or has_claims or any(bound))


def may_go(pod: Pod, node: Node) -> bool:
    """Whether the node has the labels that the pod selects, and no taint that it does not put up with."""
    return _missing_label(pod, node) is None and _untolerated(pod, node) is None


def why_not(pod: Pod, node: Node) -> Rejection | None:
    """Say why kube-scheduler would not let the pod go there; `None` where it may go, as far as labels and taints say."""
    if key := _missing_label(pod, node):
        selected, there = (pod.spec.node_selector or {})[key], (node.metadata.labels or {}).get(key)
        figures = f"{_short(key)}={_short(selected)} is selected, " + (
            f"the node has {_short(there)}" if there is not None else "the node has no such label"
        )
        remedy = "correct spec.nodeSelector, or label a node"
        return Rejection(Reason.CLOSED, "the pod's nodeSelector excludes the node", figures, remedy)
    if taint := _untolerated(pod, node):
        if taint.key == _UNSCHEDULABLE.key:
            return Rejection(Reason.CLOSED, CORDONED, remedy="kubectl uncordon")
        remedy = "add a toleration to the pod, or remove the taint"
        return Rejection(Reason.CLOSED, "the node has a taint that the pod does not tolerate", _written(taint), remedy)
    return None


def why_set_aside(node: Node, tolerated: Collection[str]) -> str | None:
    """Say why a pod that tolerates only taints with these keys does not go there: for counts that are about no pod."""
    taints = [taint for taint in _taints(node) if taint.key not in tolerated]
    if any(taint.key == _UNSCHEDULABLE.key for taint in taints):
        return CORDONED
    return f"taint {_written(taints[0])}" if taints else None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration puts up with a taint, of a node or a device."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == (taint.value or "")


def _missing_label(pod: Pod, node: Node) -> str | None:
    labels, selector = node.metadata.labels or {}, pod.spec.node_selector or {}
    return next((key for key, value in selector.items() if labels.get(key) != value), None)


def _untolerated(pod: Pod, node: Node) -> Taint | None:
    tolerations = pod.spec.tolerations or ()
    return next(
        (taint for taint in _taints(node) if not any(tolerates(toleration, taint) for toleration in tolerations)), None
    )


def _taints(node: Node) -> Iterator[Taint]:
    if node.spec.unschedulable:
        yield _UNSCHEDULABLE
    yield from (taint for taint in node.spec.taints or () if taint.effect in KEEPS_AWAY)


def _written(taint: Taint) -> str:
    return f"{_short(taint.key)}{f'={_short(taint.value)}' if taint.value else ''}:{taint.effect}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
