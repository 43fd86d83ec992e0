"""Claim the GPUs of pods behind our scheduling gate, all those of a node in one write, before any of their gates is opened.

A gate that is opened commits as a Binding does: only while the pod is in one version. That is the version which its claims
name. So the argument of `bind` holds here. As long as the gate can be opened, the claims are in the ledger; before they
leave, the pod is fenced. What a planner that died has left is an orphan, or is carried forward by the next planner.

Claims that the pod has on other nodes are dropped first, as by `bind`, unless it is a member of a gang: see `PlannedPod`. If
it has others on this node, they are replaced after a fence, and only in the ledger as it was read before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.binding.bind import are_same, record_of
from extender.binding.intents import Done, GetNode, Gone, Intent, NoAnswer, Refused, Reply, Step, fence
from extender.binding.ledger import swap_ledger
from extender.binding.older_claims import drop_claims, drop_older_claims
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


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """A pod that waits behind our gate, and what it is to get on one node."""

    uid: str
    request: GpuRequest
    held: Held
    """Unless it has claims there already: these go before."""
    replaces: frozenset[str] | None = None
    """Other nodes whose claims go; `None`: all. The rest belongs to another planner, which may be opening gates of the gang."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """What one pod gets."""

    pod: Pod
    parts: Parts
    replaces: frozenset[str] | None

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
        choices, of_others = yield from _made_alone(state, view, choices)
        refused |= of_others
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

    All of them are fenced before the first one loses its claims, also those without, and all but the last one once more. Another
    planner may be claiming for them, and opening their gates. If it opens one after these fences, it has heard of all of them: a
    watch shows changes in their order. So it has renewed all claims since, and the swaps fail, which rest on earlier ledgers.
    """
    nodes = sorted({node for uid in uids for node in state.may_be_claimed_on(uid)})
    views = [state.views[node] for node in nodes]
    if not all(view.is_ledger_known for view in views):
        return False
    for uid in (*uids, *uids[:-1]) if views else ():
        pod = state.pods.get(uid)
        fenced = (yield fence(pod.pod)) if pod and pod.is_gated else None
        if not (isinstance(fenced, Done) and isinstance(fenced.value, Pod)):
            return False
        state.pods.learn(fenced.value)
    are_dropped = True
    for view in views:  # all of them, whatever becomes of one: fences of a large gang take seconds
        dropped = yield from drop_claims(state, (view,), {*uids}, _ask)
        are_dropped &= isinstance(dropped, Done)
    return are_dropped


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
                else view.decide_on(item.held, item.request, taken)
            )
        record = _record(state, view, pod.pod, item.request, decision) if isinstance(decision, Placement) else None
        if record is None:
            refused.add(item.uid)
            continue
        choices[item.uid] = _Choice(pod.pod, planned_parts(pod.pod, record), item.replaces)
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


def _made_alone(
    state: ClusterState, view: NodeView, choices: Mapping[str, _Choice]
) -> Step[tuple[dict[str, _Choice], set[str]]]:
    """Fence the pods that have other claims, and drop those on other nodes.

    Returns the pods for which that is done, and those that another planner has claimed for elsewhere. A gang's member with claims
    here keeps those elsewhere, too, until its gate is open: two planners would drop each other's.
    """
    alone, of_others = dict[str, _Choice](), set[str]()
    for uid, choice in choices.items():
        pod, own = choice.pod, view.claims_of(uid)
        keeps_all = choice.replaces is not None and bool(own)
        if choice.replaces is not None and not own and state.may_be_claimed_on(uid) - {view.name, *choice.replaces}:
            of_others.add(uid)
            continue
        if own and not are_same(own, choice.claims):
            fenced = yield fence(pod)
            if not (isinstance(fenced, Done) and isinstance(fenced.value, Pod)):
                continue
            state.pods.learn(fenced.value)
            pod = fenced.value
        reply = Done(pod) if keeps_all else (yield from drop_older_claims(state, pod, view.name, _ask))
        if isinstance(reply, Done) and isinstance(reply.value, Pod):
            alone[uid] = replace(choice, pod=reply.value)
    return alone, of_others


def _ask(intent: Intent) -> Step[Reply]:
    return (yield intent)
