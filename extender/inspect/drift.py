"""Where what was planned and what is differ: the pods' records, the nodes' ledgers, and what the agents saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from extender.cluster.node_view import NodeView
from extender.cluster.objects.parts import gib_of, of_sharers
from extender.cluster.ownership.holdings import Holding
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, node_names
from extender.inspect.rows import rows

OTHER_GPUS = (
    "its containers have other GPUs, or other shares of them, than planned; record and ledger follow within seconds"
)
NO_RECORD = "it was bound without gputopo"
LEDGER_DIFFERS = (
    "the ledger says something else; it is corrected within seconds, unless another pod's claim is in the way"
)
UNSEEN = "the node's agent has not seen all of its GPUs"
SHARED_BY_MISTAKE = "another pod has one of its GPUs, too: delete one of the two"

OTHER_DEVICES = "its containers have other DRA devices than planned: delete the pod"
SHARED_BY_PLUGIN = (
    "the device plugin shares the GPUs that it gave: they are not the pod's alone, or fewer than it asked for"
)


class Difference(Answer):
    """One pod that has, or may have, other GPUs than is written."""

    namespace: str
    name: str
    node: str
    planned: tuple[int, ...]
    """By its record, as `nvidia-smi` counts them."""
    claimed: tuple[int, ...]
    """By the node's ledger."""
    seen: tuple[int, ...]
    """By the node's agent, under the pod's name."""
    what: str


class Drift(Answer):
    """All of them."""

    differences: tuple[Difference, ...]


def drift(state: ClusterState) -> Drift:
    """Return every difference, by node and pod; linear in pods with GPUs."""
    differences = (
        difference for name in node_names(state) for difference in rows(name, partial(_differences, state.views[name]))
    )
    return Drift(differences=tuple(differences))


def _differences(view: NodeView) -> Iterator[Difference]:
    topology = view.shape.topology_class
    indexes = dict(zip(view.devices, topology.node.indexes, strict=True)) if topology else {}

    shared = view.payloads.observed.value.shared if view.payloads.observed.value else {}

    def counted(gpus: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted(indexes[gpu] for gpu in gpus if gpu in indexes))

    for held in sorted(view.holdings, key=lambda held: held.pod.key):
        pod, claimed = held.pod, held.claimed
        planned = frozenset(pod.placed or ())
        seen = frozenset(gpu for gpu, holder in view.holders.items() if (holder.namespace, holder.name) == pod.key)
        parts = frozenset(
            gpu for gpu, sharers in shared.items() if any((who.namespace, who.name) == pod.key for who in sharers)
        )
        by_claim = view.dra.seen_with(pod.key)
        seen |= parts | by_claim
        if parts and not pod.shares:
            what = SHARED_BY_PLUGIN
        elif view.conflicts.keys() & (planned | seen | claimed.keys()):
            what = SHARED_BY_MISTAKE
        elif planned and not by_claim <= planned:
            what = OTHER_DEVICES
        elif pod.shares:
            what = _what_of_shares(view, held)
        else:
            what = _what(pod.gpus or 0, planned, frozenset(claimed), seen)
        if what:
            namespace, name = pod.key
            sets = {"planned": counted(planned), "claimed": counted(claimed), "seen": counted(seen)}
            yield Difference(namespace=namespace, name=name, node=view.name, **sets, what=what)


def _what_of_shares(view: NodeView, held: Holding) -> str:
    mine = [
        (gpu, who)
        for gpu, several in view.sharers.items()
        for who in several
        if (who.namespace, who.name) == held.pod.key
    ]
    seen, planned = of_sharers(mine), held.pod.placed or {}
    if not planned:
        return NO_RECORD
    if any(part not in planned.get(gpu, ()) for gpu, parts in seen.items() for part in parts):
        return OTHER_GPUS
    if held.claimed != planned:
        return LEDGER_DIFFERS
    return UNSEEN if seen and gib_of(seen) < held.pod.listed_gib else ""


def _what(gpus: int, planned: frozenset[str], claimed: frozenset[str], seen: frozenset[str]) -> str:
    if not planned:
        return NO_RECORD
    if seen and not seen <= planned:
        return OTHER_GPUS
    if claimed != planned:
        return LEDGER_DIFFERS
    return UNSEEN if seen and len(seen) < gpus else ""
