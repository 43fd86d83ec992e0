"""What is wrong with a GPU, in words for people."""

from __future__ import annotations

from extender.cluster.node_view import NodeView
from extender.cluster.ownership.standing import Standing
from extender.cluster.sickness import TAINTED
from topology.node.silicon import Excluded
from topology.node.status import GpuStatus

NO_REASON = "its agent calls it unhealthy, and does not say why"
SLICED = "MIG is on: it is cut into slices"
FOREIGN = "in use by a process that no container explains"
HELD_BY_CLAIM = "held by ResourceClaim "
UNEXPLAINED = "used as a DRA device that no ResourceClaim holds,"
HAS_WHOLE = "has the whole GPU"
HAS_PART = "has a MIG device of the GPU"
HAS_EARLIER = "still has a MIG slice of an earlier cut"
NOT_OWNED = "published by another node, too"
_NAMED = 3
RECORDED = "held by a pod of which the ledger does not know yet"


class Faults:
    """What is wrong with the GPUs and slices of one node, asked for by position; what concerns all of them is read once."""

    def __init__(self, view: NodeView) -> None:
        status, observed, gpus = view.payloads.status.value, view.payloads.observed.value, view.payloads.topology.value
        self._view = view
        self._gpus = gpus.uuids if gpus else ()
        self._node = gpus.topology_class.node if gpus else None
        self._status = {gpu.uuid: gpu for gpu in status.gpus} if status else {}
        self._foreign = view.foreign
        self._shared = observed.shared if observed else {}
        self._claimed = {claim.gpu for claim, standing in view.claims if standing is not Standing.FREE}
        self._across = _across(view)

    def of(self, position: int) -> tuple[str, ...]:
        """Say what is wrong with a device, its own faults first; of one that has none, why it is not given away if so."""
        view, uuid, gpu = self._view, self._view.devices[position], self._gpu_of(position)
        reasons = list(_reasons(self._status.get(uuid)))
        if position >= len(self._gpus) and self._node is not None:
            index = self._node.indexes[position]
            reasons += [f"GPU {index}: {reason}" for reason in self._reasons_if_sick(gpu)]
        if self._is_sliced(position):
            reasons.append(SLICED)
        if uuid in self._foreign:
            reasons.append(FOREIGN)
        if claims := view.claims_on(uuid):
            reasons.append(HELD_BY_CLAIM + _named(claims))
        if users := view.dra.unexplained.get(uuid) or view.dra.unexplained.get(gpu):
            reasons.append(f"{UNEXPLAINED} by {_named(tuple(f'{user.namespace}/{user.name}' for user in users))}")
        if taint := view.dra.tainted.get(gpu):
            reasons.append(TAINTED + taint)
        if gpu in view.not_owned:
            reasons.append(NOT_OWNED)
        if uuid in self._shared:
            pods = dict.fromkeys(f"{who.namespace}/{who.name}" for who in self._shared[uuid])
            reasons.append(f"held in parts by {', '.join(pods)}")
        reasons += dict.fromkeys(sentence for excluded, sentence in self._across if excluded.across(uuid))
        if view.shape.closed is not None:
            reasons.append(view.shape.closed)
        if not reasons and uuid not in self._claimed and not view.usable >> position & 1:
            reasons.append(RECORDED)
        return tuple(reasons)

    def _gpu_of(self, position: int) -> str:
        """Return the UUID of a GPU, or of the one that a slice is cut out of."""
        if self._node is None or position < len(self._gpus):
            return self._view.devices[position]
        return self._gpus[self._node.positions[self._node.indexes[position]]]

    def _reasons_if_sick(self, gpu: str) -> tuple[str, ...]:
        status = self._status.get(gpu)
        return _reasons(status) if status and not status.healthy else ()

    def _is_sliced(self, position: int) -> bool:
        status = self._status.get(self._view.devices[position])
        if status and status.mig_enabled:
            return True
        return self._node is not None and position < len(self._gpus) and self._node.gpus[position].mig_enabled


def _reasons(status: GpuStatus | None) -> tuple[str, ...]:
    if status is None:
        return ()
    return status.reasons or (() if status.healthy else (NO_REASON,))


def _across(view: NodeView) -> list[tuple[Excluded, str]]:
    """Return which pods have silicon that others may be of, by which device; of a GPU in slices these say it."""
    taken = {
        (claim.gpu, f"{claim.namespace}/{claim.name}")
        for claim, standing in view.claims
        if standing is not Standing.FREE
    }
    taken |= {(gpu, f"{who.namespace}/{who.name}") for gpu, who in view.holders.items()}
    silicon, sentences = view.silicon, list[tuple[Excluded, str]]()
    for gpu, pod in sorted(taken):
        is_gone = silicon.is_gone(gpu)
        if gpu in silicon.overlaps:
            sentences.append((silicon.excluded_by((gpu,)), f"{pod} {HAS_PART}"))
        elif is_gone or (silicon.slices and gpu not in silicon.slices):
            sentences.append((silicon.excluded_by((gpu,)), f"{pod} {HAS_EARLIER if is_gone else HAS_WHOLE}"))
    return sentences


def _named(claims: tuple[str, ...]) -> str:
    """Name the first of those that share a GPU; there may be any number.

    >>> _named(("ml/a", "ml/b", "ml/c", "ml/d", "ml/e"))
    'ml/a, ml/b, ml/c and 2 more'
    """
    named = ", ".join(claims[:_NAMED])
    return f"{named} and {len(claims) - _NAMED} more" if len(claims) > _NAMED else named
