"""What is wrong with a GPU, in words for people."""

from __future__ import annotations

from extender.cluster.node_view import NodeView
from extender.cluster.objects.topologies import NodeGpus
from extender.cluster.ownership.standing import Standing
from topology.node.status import NodeStatus

NO_REASON = "its agent calls it unhealthy, and does not say why"
SLICED = "MIG is on: it is cut into slices"
FOREIGN = "in use by a process that no container explains"
HELD_BY_CLAIM = "held by ResourceClaim "
TAINTED = "tainted by its DRA driver: "
HAS_WHOLE = "has the whole GPU"
HAS_EARLIER = "still has a MIG slice of an earlier cut"
NOT_OWNED = "published by another node, too"
_NAMED = 3
RECORDED = "held by a pod of which the ledger does not know yet"


def reasons_of(view: NodeView, position: int) -> tuple[str, ...]:
    """Say what is wrong with a GPU or slice, its own faults first; of one that has none, why it is not given away if so."""
    uuid, payloads = view.devices[position], view.payloads
    status, observed, gpus = payloads.status.value, payloads.observed.value, payloads.topology.value
    found = [reason for gpu in (status.gpus if status else ()) if gpu.uuid == uuid for reason in gpu.reasons]
    if status and uuid in status.unhealthy and not found:
        found.append(NO_REASON)
    if status and gpus:
        found += _of_its_gpu(gpus, status, position)
    sliced = {gpu.uuid for gpu in (status.gpus if status else ()) if gpu.mig_enabled}
    if uuid in sliced or (gpus and uuid in gpus.uuids and gpus.topology_class.node.gpus[position].mig_enabled):
        found.append(SLICED)
    if observed and uuid in observed.foreign_processes:
        found.append(FOREIGN)
    if claims := view.dra.held.get(_gpu_of(view, position)):
        found.append(HELD_BY_CLAIM + _named(claims))
    if taint := view.dra.tainted.get(_gpu_of(view, position)):
        found.append(TAINTED + taint)
    if _gpu_of(view, position) in view.not_owned:
        found.append(NOT_OWNED)
    if observed and uuid in observed.shared:
        pods = dict.fromkeys(f"{who.namespace}/{who.name}" for who in observed.shared[uuid])
        found.append(f"held in parts by {', '.join(pods)}")
    found += _taken_across(view, uuid)
    if view.shape.closed is not None:
        found.append(view.shape.closed)
    claimed = any(claim.gpu == uuid for claim, standing in view.claims if standing is not Standing.FREE)
    if not found and not claimed and not view.usable >> position & 1:
        found.append(RECORDED)
    return tuple(found)


def _taken_across(view: NodeView, uuid: str) -> list[str]:
    """Say which pods have the silicon of a GPU or slice by another device, each once; of a GPU in slices these say it."""
    standing_claims = (claim for claim, standing in view.claims if standing is not Standing.FREE)
    taken = {(claim.gpu, f"{claim.namespace}/{claim.name}") for claim in standing_claims}
    taken |= {(gpu, f"{who.namespace}/{who.name}") for gpu, who in view.holders.items()}
    across = ((gpu, pod) for gpu, pod in sorted(taken) if view.silicon.excluded_by((gpu,)).across(uuid))
    said = [
        f"{pod} {HAS_EARLIER if view.silicon.is_gone(gpu) else HAS_WHOLE}"
        for gpu, pod in across
        if gpu not in view.silicon.slices
    ]
    return list(dict.fromkeys(said))


def _named(claims: tuple[str, ...]) -> str:
    """Name the first of those that share a GPU; there may be any number.

    >>> _named(("ml/a", "ml/b", "ml/c", "ml/d", "ml/e"))
    'ml/a, ml/b, ml/c and 2 more'
    """
    named = ", ".join(claims[:_NAMED])
    return f"{named} and {len(claims) - _NAMED} more" if len(claims) > _NAMED else named


def _gpu_of(view: NodeView, position: int) -> str:
    """Return the UUID of a GPU, or of the one that a slice is cut out of."""
    gpus = view.payloads.topology.value
    if gpus is None or position < len(gpus.uuids):
        return view.devices[position]
    node = gpus.topology_class.node
    return gpus.uuids[node.positions[node.indexes[position]]]


def _of_its_gpu(gpus: NodeGpus, status: NodeStatus, position: int) -> list[str]:
    """Return what is wrong with the GPU that a slice is cut out of; nothing for a GPU."""
    if position < len(gpus.uuids):
        return []
    node = gpus.topology_class.node
    index = node.indexes[position]
    uuid = gpus.uuids[node.positions[index]]
    sick = (gpu for gpu in status.gpus if gpu.uuid == uuid and not gpu.healthy)
    return [f"GPU {index}: {reason}" for gpu in sick for reason in gpu.reasons or (NO_REASON,)]
