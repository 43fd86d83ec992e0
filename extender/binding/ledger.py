"""The compare-and-swap of a node's ledger.

A ledger is only ever replaced whole, and only if it still is the one that the decision rests on. Each write also leaves out the
claims that are proven dead, and takes in what live pods hold without a claim.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from extender.binding.intents import SwapLedger
from extender.cluster.ledger_room import bytes_beside_shares
from extender.cluster.node_view import NodeView
from extender.cluster.objects.claims import going_together
from extender.cluster.ownership.standing import Standing
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import Claim, Ledger, encode_ledger
from topology.errors import PayloadError


def next_generation(view: NodeView) -> int:
    """Return the generation of the ledger that follows the one in `view`: later than of any that the node ever had.

    Whoever writes a ledger anew may not know how far the lost one had come, and others remember it. But each write makes the
    node's resourceVersion grow by more than the generation, so none was beyond the version that this one rests on.
    """
    before, version = view.payloads.ledger.value, view.node.metadata.resource_version
    return 1 + max(before.generation if before else 0, int(version) if version.isdecimal() else 0)


def swap_ledger(
    view: NodeView, *, without: Collection[str] = (), claims: Collection[Claim] = (), facts: Collection[Claim] = ()
) -> SwapLedger:
    """Return the intent to replace the ledger that `view` shows.

    Args:
        view: The node with the ledger that the decision rests on.
        without: UIDs of the pods whose claims end.
        claims: Claims that begin. They rest on the topology, and on the GPUs that the agent called healthy.
        facts: Claims of pods that hold their GPUs already; they rest on nothing.

    Raises:
        PayloadError: The new ledger would be larger than readers accept, or leave no room for whole GPUs beside new shares; not
            where claims only end.

    """
    begun = [*facts, *claims]
    kept = [claim for claim, standing in view.claims if standing is not Standing.FREE and claim.uid not in without]
    missing = [claim for claim in view.unledgered if claim.uid not in without]
    try:
        ledger = _encode(view, [*begun, *kept, *missing])
    except PayloadError:
        if begun:
            raise
        ledger = _encode(view, kept)  # what is missing counts without a claim, too; what ended must not stay for it
    claimed = {claim.gpu for claim, standing in view.claims if standing is not Standing.FREE}
    left = bytes_beside_shares(view.payloads, claimed)
    if any(claim.memory_gib for claim in claims) and len(ledger) > MAX_BYTES - left:
        raise PayloadError("$", "shares are in all of it but what whole GPUs need")
    return SwapLedger(
        node=view.name,
        node_uid=view.node.metadata.uid,
        digest=view.payloads.digest if claims else None,
        expected=None if view.is_broken else view.payloads.ledger.text,
        ledger=ledger,
        resource_version=view.node.metadata.resource_version,
        status=view.payloads.status.text if claims else None,
    )


def _encode(view: NodeView, claims: Sequence[Claim]) -> str:
    """Write the claims, each of a slice with its GPU, and the node's own GPUs; leave out what cannot stand beside a claim."""
    slices, before = view.silicon.slices, view.payloads.ledger.value
    named = (replace(claim, parent=slices[claim.gpu]) if claim.gpu in slices else claim for claim in claims)
    ledger = Ledger(next_generation(view), tuple(going_together(named)), view.node.metadata.uid, view.owned_gpus)
    try:
        return encode_ledger(ledger)
    except PayloadError:  # claims come first: one that ended must not stay because GPUs are recorded
        return encode_ledger(replace(ledger, gpus=before.gpus if before else None))
