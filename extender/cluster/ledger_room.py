"""How many more claims a node's ledger takes: filter must refuse what bind could not write down.

The answer is a number of claims. Each counts with the longest names that Kubernetes allows: the answer is the same for all pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from extender.cluster.objects.payloads import NodePayloads
from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import Claim
from topology.node.slices import MAX_DEVICES
from topology.placement.claims_left import PLENTY, ClaimsLeft

_PARENT_BYTES: Final = 64
"""What the claim of a MIG slice says of its GPU at most."""
WHOLE_CLAIM_BYTES: Final = 576 + _PARENT_BYTES
"""A claim of a whole GPU or a MIG slice at most, with UUIDs as NVIDIA writes them."""
SHARE_CLAIM_BYTES: Final = 704
"""A claim of a share at most."""
_NVIDIA_UUID_CHARACTERS: Final = 40
_SLACK_BYTES: Final = 128
"""What the next ledger says more than this one beside claims and GPUs: a longer generation, the node's UID."""
_KEPT_FOR_WHOLE_GPUS: Final = 16
"""So many GPUs that nobody has yet find room for their claims beside shares."""
_COARSE: Final = 8
"""Beyond so many shares their number is rounded down, so that nodes stay alike."""


def claims_left(
    payloads: NodePayloads, missing_claims: Callable[[], Sequence[Claim]], claimed: Collection[str]
) -> ClaimsLeft:
    """Return how many more claims the ledger takes; linear in GPUs and claims.

    Args:
        payloads: What the node's annotations say.
        missing_claims: Returns what is held without a claim; the next ledger names it, too.
        claimed: Devices on which a claim stands.

    """
    gpus, ledger = payloads.topology.value, payloads.ledger.value
    if gpus is None or ledger is None:
        return PLENTY
    longer, text = _longer(gpus.devices), payloads.ledger.text or ""
    added = 3 * len(gpus.devices)
    is_ample = (
        len(text) + added * (SHARE_CLAIM_BYTES + longer) <= MAX_BYTES and len(ledger.claims) + added <= MAX_DEVICES
    )
    if is_ample and not payloads.sharing:
        return PLENTY  # so it is on nearly all nodes
    missing, uuids = missing_claims(), set(gpus.uuids)
    unrecorded = len(uuids.difference(ledger.gpus or ())) * (_NVIDIA_UUID_CHARACTERS + longer + len('"",'))
    parents = sum(not claim.parent and claim.gpu not in uuids for claim in ledger.claims) * _PARENT_BYTES
    left = MAX_BYTES - len(text) - _SLACK_BYTES - unrecorded - parents
    left -= sum(SHARE_CLAIM_BYTES + longer for _ in missing)
    most = MAX_DEVICES - len(ledger.claims) - len(missing)
    for_whole = min(left // (WHOLE_CLAIM_BYTES + longer), most)
    kept = _kept_for_whole(gpus.uuids, claimed)
    for_shares = min((left - kept * (WHOLE_CLAIM_BYTES + longer)) // (SHARE_CLAIM_BYTES + longer), most - kept)
    return ClaimsLeft(
        None if for_whole >= len(gpus.devices) else max(0, for_whole),
        max(0, for_shares if for_shares < _COARSE else for_shares // _COARSE * _COARSE),
    )


def bytes_beside_shares(payloads: NodePayloads, claimed: Collection[str]) -> int:
    """Return how much of a ledger shares leave to the claims of whole GPUs."""
    gpus = payloads.topology.value
    if gpus is None:
        return 0
    return _kept_for_whole(gpus.uuids, claimed) * (WHOLE_CLAIM_BYTES + _longer(gpus.devices))


def _kept_for_whole(uuids: Sequence[str], claimed: Collection[str]) -> int:
    return min(sum(uuid not in claimed for uuid in uuids), _KEPT_FOR_WHOLE_GPUS)


def _longer(devices: Sequence[str]) -> int:
    return max(0, max(map(len, devices), default=0) - _NVIDIA_UUID_CHARACTERS)
