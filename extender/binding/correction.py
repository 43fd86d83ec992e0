"""What a ledger has to say so that it follows the facts.

A pod's claims move to the GPUs that it really has, all pods of a node in one write: two that were swapped change places.
Another pod may have a claim on such a GPU that excludes theirs, or a share that leaves too little memory. That pod
decides what comes first:

- an unbound pod is fenced, and loses its claims;
- one that is gone loses the claim to whom the agent saw with the GPU: the kubelet would not have given it away before;
- one that is bound keeps it, and the correction waits until it is known what that pod has instead;
- one that was never heard of keeps it, too: our cache may be behind, and absence from it proves nothing.

In a rebuild the claims are those of a ledger of the past. By then every bound pod is known and every other one is fenced.
So a pod that is bound to such a GPU came after a claim of a pod that is not bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from extender.cluster.node_view import NodeView
from extender.cluster.objects.claims import goes_with
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
    facts = [claim for held in moving.values() for claim in held.claims()]
    pending = [claim for claim, standing in view.claims if standing is Standing.PENDING]
    displaced = {claim.uid for claim in pending if _is_in_the_way(claim, facts)} | _beyond_memory(view, moving, facts)
    across = view.silicon.excluded_by(fact.gpu for fact in facts)
    displaced |= {claim.uid for claim in pending if across.across(claim.gpu)}
    return Correction(tuple(moving.values()), frozenset(displaced))


def _is_blocked(view: NodeView, moving: dict[str, Holding], held: Holding) -> bool:
    """Whether a GPU that the pod has is claimed for another one that has to be waited for."""
    waits = {Standing.HELD}
    if not view.is_broken:
        waits |= {Standing.UNSEEN} if held.seen else {Standing.UNSEEN, Standing.GONE}
    facts = held.claims()
    return any(
        standing in waits and claim.uid not in moving and _is_in_the_way(claim, facts)
        for claim, standing in view.claims
    )


def _is_in_the_way(claim: Claim, facts: Sequence[Claim]) -> bool:
    return any(claim.gpu == fact.gpu and not goes_with(claim, fact) for fact in facts)


def _beyond_memory(view: NodeView, moving: Collection[str], facts: Sequence[Claim]) -> set[str]:
    """Return the unbound pods with shares of GPUs that have not the memory for these facts and all other claims."""
    gpus = view.payloads.topology.value
    memory_gib = gpus.memory_gib if gpus and any(fact.memory_gib for fact in facts) else {}
    taken, waiting = Counter[str](), dict[str, set[str]]()
    others = [(claim, standing) for claim, standing in view.claims if claim.uid not in moving]
    for claim, standing in (*((fact, Standing.HELD) for fact in facts), *others):
        if standing is not Standing.FREE:
            taken[claim.gpu] += claim.memory_gib or 0
        if standing is Standing.PENDING:
            waiting.setdefault(claim.gpu, set()).add(claim.uid)
    full = (gpu for gpu in {fact.gpu for fact in facts} if taken[gpu] > memory_gib.get(gpu, taken[gpu]))
    return {uid for gpu in full for uid in waiting.get(gpu, ())}
