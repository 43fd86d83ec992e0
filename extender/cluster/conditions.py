"""Names of nodes with a problem, by kind of problem, as their views say."""

from __future__ import annotations

from extender.cluster.node_view import NodeView


class NodeConditions:
    """Sets of node names; a node is in as many of them as its view says."""

    def __init__(self) -> None:
        self.unsettled: set[str] = set()
        """With claims of which not all are held by pods that run there."""
        self.amiss: set[str] = set()
        """The ledger, or a pod's record, differs from what pods hold."""
        self.in_conflict: set[str] = set()
        """With GPUs that two live pods hold, or a pod and a ResourceClaim."""
        self.sick: set[str] = set()
        """With GPUs that are unfit through themselves."""
        self.unrecorded: set[str] = set()
        """With ledgers that do not record the GPUs that the node owns."""

    def put(self, name: str, view: NodeView | None) -> None:
        """Take in what a node is now; `None` if it is gone."""
        _put(self.unsettled, name, view is not None and not view.settled)
        _put(self.amiss, name, view is not None and view.is_amiss)
        _put(self.in_conflict, name, view is not None and bool(view.conflicts or view.disputed))
        _put(self.sick, name, view is not None and _has_sick_gpus(view))
        _put(self.unrecorded, name, view is not None and view.is_unrecorded)


def _put(names: set[str], name: str, is_one: bool) -> None:
    (names.add if is_one else names.discard)(name)


def _has_sick_gpus(view: NodeView) -> bool:
    status = view.payloads.status.value
    return bool(view.dra.tainted) or (status is not None and any(gpu.sick_since is not None for gpu in status.gpus))
