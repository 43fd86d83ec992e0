"""Which GPUs share a NIC with a pod whose group is on several nodes: two such pods share its bandwidth."""

from __future__ import annotations

from extender.cluster.node_view import NodeView
from extender.cluster.rails import on_the_network
from extender.cluster.state import ClusterState
from topology.bandwidth.rings import members_of


def shared_nics(state: ClusterState, view: NodeView) -> list[tuple[str, ...]]:
    """Return for each GPU by position which NIC it shares with whom, in words; of the pod that has the GPU itself nothing."""
    sentences: list[list[str]] = [[] for _ in view.uuids]
    names = {claim.uid: f"{claim.namespace}/{claim.name}" for claim, _ in view.claims}
    for uid, on_its_rails in on_the_network(state, view):
        theirs = view.nics_near(claim.gpu for claim in view.claims_of(uid))
        for i in members_of(on_its_rails & ~view.claimed_by(uid)):
            shared = [nic for nic in view.nics_near(view.uuids[i : i + 1]) if nic in theirs]
            sentences[i].append(f"shares NIC {', '.join(shared)} with {names[uid]}")
    return [*map(tuple, sentences)]
