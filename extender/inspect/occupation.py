"""What has become of each GPU and slice of a node: free, or whose, and which pods share its NIC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from extender.cluster.node_view import NodeView
from extender.cluster.ownership.standing import Standing
from extender.cluster.rails import on_the_network
from extender.cluster.state import ClusterState
from topology.bandwidth.rings import members_of

DeviceState = Literal["free", "held", "claimed", "shared", "unplanned", "unusable", "conflict"]


@dataclass(frozen=True, slots=True)
class Occupation:
    """One GPU or slice."""

    state: DeviceState
    pod: str | None
    """`namespace/name` of whom it is claimed by, or found with; of one that is shared only where one pod has all shares."""
    container: str | None


def occupations(view: NodeView, held: int) -> list[Occupation]:
    """Return what has become of each device, by position; `held` are those that are kept for pods."""
    claims = {claim.gpu: claim for claim, standing in view.claims if standing is not Standing.FREE}
    claims |= {claim.gpu: claim for claim in view.unledgered}
    observed = view.payloads.observed.value
    holders = observed.gpus if observed else {}
    users = {gpu: of[0] for gpu, of in (*view.dra.users.items(), *view.dra.unexplained.items())}
    conflicts, left_to_dra = view.conflicts.keys() | view.disputed, view.left_to_dra
    shared = {gpu.position for gpu in view.shape.shares.shared}
    states = []
    for position, uuid in enumerate(view.devices):
        if uuid not in conflicts and (uuid in view.uses or position in shared):
            states.append(_of_shared(view, uuid))
            continue
        owner = claims.get(uuid) or holders.get(uuid) or users.get(uuid)
        found_there = owner is not None or uuid in left_to_dra
        state = _state(view, position, held, claimed=uuid in claims, observed=found_there)
        state = "conflict" if uuid in conflicts else state
        pod = f"{owner.namespace}/{owner.name}" if owner else None
        states.append(Occupation(state, pod, owner.container if owner else None))
    return states


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


def _of_shared(view: NodeView, uuid: str) -> Occupation:
    takers = view.uses[uuid].takers if uuid in view.uses else ()
    pods = {f"{taker.namespace}/{taker.name}" for taker in takers}
    return Occupation(
        "shared", pods.pop() if len(pods) == 1 else None, takers[0].container if len(takers) == 1 else None
    )


def _state(view: NodeView, position: int, held: int, *, claimed: bool, observed: bool) -> DeviceState:
    if claimed:
        return "claimed"
    if observed:
        return "unplanned"
    if not view.shape.free >> position & 1:
        return "unusable"
    return "held" if held >> position & 1 else "free"
