"""Broken rules of GPUs that are shared, each put into the product, and the conditions that bring it out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.cluster import derivation
from extender.cluster.ownership.evidence import Evidence
from extender.cluster.ownership.standing import Standing
from extender.cluster.shares import shares_of
from tests.simulation.mix import only
from tests.simulation.mutants import bugs, seams
from tests.simulation.mutants.mutant import DOUBLE, Mutant
from tests.world.faults import Fault
from topology.annotations.records import Claim
from topology.placement.shares import Shares

_standing = Evidence.standing
_product: Any = derivation
_shape = _product._shape


def sum_ignored(*facts: Any) -> Shares:
    """Take all of a shared GPU for what is left of it."""
    found = shares_of(*facts)
    emptied = (replace(gpu, left_gib=found.share_gib[gpu.position]) for gpu in found.shared)
    return replace(found, shared=tuple(emptied))


def bound_ignored(*facts: Any) -> Shares:
    """Let all GPUs of a node be shared."""
    return replace(shares_of(*facts), more=None)


def shared_taken_for_free(node: Any, payloads: Any, holdings: Any, holders: Any, free: int, *facts: Any) -> Any:
    """Give GPUs whole that others have shares of."""
    (*_, uses, _) = facts
    shared = sum(1 << place for place, uuid in enumerate(payloads.topology.value.uuids) if uuid in uses)
    return _shape(node, payloads, holdings, holders, free | shared, *facts)


def class_ignored(self: Any, sharing_class: str) -> bool:
    """Let shares of all classes meet."""
    return True


def share_free_when_gone(self: Evidence, claim: Claim) -> Standing:
    """Give a share on as soon as its pod is gone, whatever still runs."""
    standing = _standing(self, claim)
    is_gone = claim.memory_gib is not None and standing is Standing.GONE
    return Standing.FREE if is_gone else standing


_BUSY = only({Fault.POD_ENDED: 2.0}, share_ratio=0.7, shared_gpus=4, nodes=1, event_seconds=0.5)
_FEW = only({Fault.POD_ENDED: 2.0}, share_ratio=0.7, shared_gpus=1, nodes=1, event_seconds=0.5)
_FORCED = only(
    {Fault.POD_FORCED: 3.0, Fault.LATE_STOP: 0.7}, share_ratio=0.8, shared_gpus=4, nodes=1, event_seconds=0.5
)

SHARES = (
    Mutant("sum of shares not compared", "shares", ("INV1",), {seams.SHARES_OF: sum_ignored}, _BUSY),
    Mutant("shared GPU given whole", "shares", DOUBLE, {seams.SHAPE: shared_taken_for_free}, _BUSY),
    Mutant("class of shares not compared", "shares", DOUBLE, {seams.TAKES_CLASS: class_ignored}, _BUSY),
    Mutant("shared GPUs not counted", "shares", ("INV4",), {seams.SHARES_OF: bound_ignored}, _FEW),
    Mutant("share free before its process is gone", "shares", DOUBLE, {seams.STANDING: share_free_when_gone}, _FORCED),
    Mutant(
        "shares without compare-and-swap", "shares", DOUBLE, {seams.SWAP_REQUEST: bugs.swap_without("ledger")}, _BUSY
    ),
)
