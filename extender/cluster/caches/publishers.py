"""Which node owns a GPU that several nodes list: the one whose ledger records it, and without a record none of them.

A UUID is unique in the world, so of two nodes with one GPU at least one is wrong, forged or out of date. Only this GPU is closed
then. The answer follows from what is written on the nodes, so all replicas give the same one, whenever they started.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.cluster.objects.payloads import NodePayloads

_NONE: frozenset[str] = frozenset()


class Publishers:
    """All nodes by the UUIDs that they publish or that their ledgers record."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, ...]] = {}
        """UUID → all nodes that publish or record it."""
        self._published: dict[str, tuple[str, ...]] = {}
        self._recorded: dict[str, tuple[str, ...]] = {}

    def publish(self, node: str, uuids: tuple[str, ...], recorded: tuple[str, ...] = ()) -> set[str]:
        """Take this for all that a node publishes and records; returns the other nodes for which that may change something."""
        before, was_recorded = self._published.get(node, ()), self._recorded.get(node, ())
        if before == uuids and was_recorded == recorded:
            return set()
        lost, gained = {*before, *was_recorded}, {*uuids, *recorded}
        affected = self._sharing(lost - gained, node)
        for uuid in lost - gained:
            rest = tuple(name for name in self._nodes[uuid] if name != node)
            if rest:
                self._nodes[uuid] = rest
            else:
                del self._nodes[uuid]
        for uuid in gained - lost:
            self._nodes[uuid] = (*self._nodes.get(uuid, ()), node)
        _set(self._published, node, uuids)
        _set(self._recorded, node, recorded)
        return affected | self._sharing(gained, node)

    def not_owned(self, node: str) -> frozenset[str]:
        """Return the GPUs that a node publishes and does not own."""
        uuids = self._published.get(node, ())
        if all(len(self._nodes[uuid]) == 1 for uuid in uuids):
            return _NONE
        return frozenset(uuid for uuid in uuids if not self._owns(node, uuid))

    def _owns(self, node: str, uuid: str) -> bool:
        nodes = self._nodes[uuid]
        recorded = [name for name in nodes if uuid in self._recorded.get(name, ())]
        return (recorded or list(nodes)) == [node]

    def _sharing(self, uuids: Iterable[str], node: str) -> set[str]:
        return {name for uuid in uuids for name in self._nodes[uuid] if name != node}


def _set(values: dict[str, tuple[str, ...]], node: str, uuids: tuple[str, ...]) -> None:
    if uuids:
        values[node] = uuids
    else:
        values.pop(node, None)


def recorded_gpus(payloads: NodePayloads) -> tuple[str, ...]:
    """Return the GPUs that a node's ledger records and the node has not given up.

    A node gives a GPU up when its topology no longer lists it and no claim stands on it. A ledger of an earlier version records
    nothing; then the GPUs of its claims count.
    """
    ledger, gpus = payloads.ledger.value, payloads.topology.value
    if ledger is None:
        return ()
    if gpus is not None and ledger.gpus is not None and set(ledger.gpus) == set(gpus.uuids):
        return gpus.uuids  # so it is on nearly all nodes: one tuple is enough
    claimed = {claim.gpu for claim in ledger.claims}
    recorded = ledger.gpus if ledger.gpus is not None else tuple(sorted(claimed))
    if gpus is None:
        return recorded
    return tuple(uuid for uuid in recorded if uuid in gpus.uuids or uuid in claimed)
