"""What a ledger has to say so that it follows the facts.

A pod's claims move to the GPUs that it really has, all pods of a node in one write: two that were swapped change places. Who
else has a claim on such a GPU decides what comes first:

- an unbound pod is fenced, and loses its claims;
- one that is gone loses the claim to whom the agent saw with the GPU: the kubelet would not have given it away before;
- one that is bound keeps it, and the correction waits until it is known what that pod has instead;
- one that was never heard of keeps it, too: our cache may be behind, and absence from it proves nothing.

In a rebuild the claims are those of a ledger of the past. By then every bound pod is known and every other one fenced, so whoever
is bound to such a GPU came after a claim of a pod that is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.cluster.node_view import NodeView
from extender.cluster.ownership.holdings import Holding
from extender.cluster.ownership.standing import Standing
from topology.annotations.records import Claim


@dataclass(frozen=True, slots=True)
class Correction:
    """One write."""

    holdings: tuple[Holding, ...]
    """Of the pods whose claims change."""
    displaced: frozenset[str] = frozenset()
    """UIDs of unbound pods that have claims on their GPUs."""

    @property
    def facts(self) -> tuple[Claim, ...]:
        """The claims that begin."""
        return tuple(claim for held in self.holdings for claim in held.claims())


def correct(view: NodeView) -> Correction:
    """Return what can be corrected now; nothing about a GPU that two live pods have, which is a conflict."""
    conflicts = view.conflicts
    moving = {
        held.pod.uid: held
        for held in view.holdings
        if not held.is_settled and view.has_devices(held.gpus) and not conflicts.keys() & held.gpus.keys()
    }
    while blocked := {uid for uid, held in moving.items() if _is_blocked(view, moving, held)}:
        for uid in blocked:
            del moving[uid]
    gpus = {gpu for held in moving.values() for gpu in held.gpus}
    displaced = {claim.uid for claim, standing in view.claims if claim.gpu in gpus and standing is Standing.PENDING}
    return Correction(tuple(moving.values()), frozenset(displaced))


def _is_blocked(view: NodeView, moving: dict[str, Holding], held: Holding) -> bool:
    """Whether a GPU that the pod has is claimed for another one that has to be waited for."""
    waits = {Standing.HELD}
    if not view.is_broken:
        waits |= {Standing.UNSEEN} if held.seen else {Standing.UNSEEN, Standing.GONE}
    return any(
        standing in waits and claim.gpu in held.gpus and claim.uid not in moving for claim, standing in view.claims
    )
