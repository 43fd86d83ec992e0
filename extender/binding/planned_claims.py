"""Claim the GPUs of pods behind our scheduling gate, all those of a node in one write, before any of their gates is opened.

A gate that is opened commits as a Binding does: only while the pod is in one version. That is the version which its claims
name. So the argument of `bind` holds here. As long as the gate can be opened, the claims are in the ledger; before they
leave, the pod is fenced. What a planner that died has left is an orphan, or is carried forward by the next planner.

Claims that the pod has on other nodes are dropped first, as by `bind`. If it has others on this node, they are replaced
after a fence, and only in the ledger as it was read before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.binding.bind import are_same, record_of
from extender.binding.intents import Done, GetNode, Gone, Intent, NoAnswer, Refused, Reply, Step, fence
from extender.binding.ledger import swap_ledger
from extender.binding.older_claims import drop_older_claims
from extender.cluster.candidates.holds import NOTHING, Held
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import claims_for, planned_parts, sharing_class_of
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.parts import Parts
from extender.cluster.state import ClusterState
from topology.annotations import keys
from topology.annotations.records import Claim, PlacementRecord, encode_placement
from topology.errors import PayloadError, RequestError
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

MAX_ROUNDS: Final = 3
NOWHERE: Final = ""


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod that waits behind our gate, and what it is to get on one node."""

    uid: str
    request: GpuRequest
    gpus: int
    """Mask over positions. Claims that it has there already go before."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one pod gets."""

    pod: Pod
    parts: Parts

    @property
    def claims(self) -> tuple[Claim, ...]:
        return claims_for(self.pod, self.parts, sharing_class_of(self.pod))


def claim_planned(state: ClusterState, node: str, planned: Sequence[PlannedPod]) -> Step[frozenset[str]]:
    """Claim for these pods, and return the UIDs of those that cannot have their GPUs there.

    Try again for pods that are neither claimed for nor refused.
    """
    for _ in range(MAX_ROUNDS):
        view = state.views.get(node)
        if view is None or not view.is_ledger_known:
            return frozenset()
        choices, refused = _choose(state, view, planned)
        choices = yield from _made_alone(state, view, choices)
        claims = [claim for choice in choices.values() for claim in choice.claims]
        if set(claims) <= {claim for claim, _ in view.claims}:
            return refused
        try:
            swap = swap_ledger(view, without=choices.keys(), claims=claims)
        except PayloadError:
            return refused | choices.keys()
        reply: Reply = yield swap
        match reply:
            case Done(Node() as written):
                state.nodes.learn(written)
                return refused
            case NoAnswer():
                for uid in choices:
                    state.memory.doubtful_claims.add(uid, node, swap.expected)
                return refused
            case Refused():
                return refused | choices.keys()
            case Gone():
                return refused
        newest = yield GetNode(node)
        if not (isinstance(newest, Done) and isinstance(newest.value, Node)):
            return refused
        state.nodes.learn(newest.value)
    return frozenset()


def take_claims_back(state: ClusterState, uids: Sequence[str]) -> Step[bool]:
    """Drop all claims of pods behind our gate that start together; returns whether none is left.

    All of them are fenced before the first one loses its claims, also those without. Another planner may have claimed for them,
    and be about to open their gates. So none of them starts without the others.
    """
    for uid in uids if len(uids) > 1 else ():
        pod = state.pods.get(uid)
        fenced = (yield fence(pod.pod)) if pod and pod.is_gated else None
        if not (isinstance(fenced, Done) and isinstance(fenced.value, Pod)):
            return False
        state.pods.learn(fenced.value)
    for uid in uids:
        pod = state.pods.get(uid)
        if pod is None or not pod.is_gated:
            return False
        if not isinstance((yield from drop_older_claims(state, pod.pod, NOWHERE, _ask)), Done):
            return False
    return True


def planned_record(state: ClusterState, pod: Pod, node: str, request: GpuRequest) -> str:
    """Return the record of what a pod behind our gate has claims on there; empty where it cannot be written before the bind.

    It holds on this node, and until the pod is fenced: as long as the ledger has the claims. One that is rebuilt may lack them.
    """
    uid, view = pod.metadata.uid, state.views.get(node)
    ledger = view.payloads.ledger.value if view else None
    if view is None or ledger is None:
        return ""
    with state.effort.bounded():
        decision = view.decide_for(uid, request)
    if not isinstance(decision, Placement):
        return ""
    record = _record(state, view, pod, request, decision)
    if record is None:
        return ""
    claims = claims_for(pod, planned_parts(pod, record), sharing_class_of(pod))
    if {*claims} != {replace(claim, parent="") for claim in view.claims_of(uid)}:
        return ""
    fence_mark = (pod.metadata.annotations or {}).get(keys.FENCE, "")
    planned = replace(record, ledger_generation=ledger.generation, planned_node=node, planned_fence=fence_mark)
    try:
        return encode_placement(planned)
    except PayloadError:
        return ""


def _choose(
    state: ClusterState, view: NodeView, planned: Sequence[PlannedPod]
) -> tuple[dict[str, _Choice], frozenset[str]]:
    """Return what each pod gets beside the others, by UID, and those for whom nothing is left."""
    choices, refused, taken = dict[str, _Choice](), set[str](), NOTHING
    for item in planned:
        pod = state.pods.get(item.uid)
        if pod is None or not pod.awaits_plan:
            continue
        has_claims = bool(view.claims_of(item.uid))
        with state.effort.bounded():
            decision = (
                view.decide_for(item.uid, item.request, taken)
                if has_claims
                else view.decide_on(item.gpus, item.request, taken)
            )
        record = _record(state, view, pod.pod, item.request, decision) if isinstance(decision, Placement) else None
        if record is None:
            refused.add(item.uid)
            continue
        choices[item.uid] = _Choice(pod.pod, planned_parts(pod.pod, record))
        if isinstance(decision, Placement) and not has_claims:
            taken += Held.of(decision, item.request)
    return choices, frozenset(refused)


def _record(
    state: ClusterState, view: NodeView, pod: Pod, request: GpuRequest, placement: Placement
) -> PlacementRecord | None:
    """Return the record of a placement that meets one of the pod's requests; `None`: its ResourceClaims have changed."""
    try:
        requested = state.request_of(pod)
    except RequestError:
        return None
    if request.alternative > len(requested.fallbacks):
        return None
    return record_of(view, requested.instead(request.alternative), placement)


def _made_alone(state: ClusterState, view: NodeView, choices: Mapping[str, _Choice]) -> Step[dict[str, _Choice]]:
    """Fence the pods that have other claims, and drop those on other nodes; returns the pods for which that is done."""
    alone = dict[str, _Choice]()
    for uid, choice in choices.items():
        pod, own = choice.pod, view.claims_of(uid)
        if own and not are_same(own, choice.claims):
            fenced = yield fence(pod)
            if not (isinstance(fenced, Done) and isinstance(fenced.value, Pod)):
                continue
            state.pods.learn(fenced.value)
            pod = fenced.value
        reply = yield from drop_older_claims(state, pod, view.name, _ask)
        if isinstance(reply, Done) and isinstance(reply.value, Pod):
            alone[uid] = _Choice(reply.value, choice.parts)
    return alone


def _ask(intent: Intent) -> Step[Reply]:
    return (yield intent)
