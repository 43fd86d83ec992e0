"""Bind a pod to a node with exact GPUs, so that no GPU ever belongs to two live pods.

The protocol, sans I/O: a generator that yields intents, takes one reply for each, and returns what happened. It may die at any
point and start again anywhere, because all state is in the Kubernetes API. In short:

- B1 read the pod (at first the cache will do, later only a live read); R is its resourceVersion;
- B2 choose GPUs. A pod with claims on the node keeps exactly those, or is fenced before it gets others. Claims that it has on
  other nodes are dropped after a fence, or else the bind ends here (`older_claims`);
- B3 claim them for (pod, R) by compare-and-swap of the node's ledger;
- B4 post the Binding, with the pod's UID and R as preconditions and the GPUs as annotation;
- B5 after anything but success read the pod live, and believe nothing else.

Why no GPU is given twice: the Binding commits only while the pod is at R. As long as it can, the claim (pod, R) is in the
ledger. It leaves when R has moved and the pod was seen unbound, or when the pod's containers are proven to have stopped.
A claim whose Binding may still be under way is kept; `release` fences it later. No clock and no leader appear in the
argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from extender.binding.intents import (
    BindPod,
    Conflict,
    Done,
    GetNode,
    GetPod,
    Gone,
    Intent,
    NoAnswer,
    Reply,
    Step,
    fence,
    in_words,
)
from extender.binding.ledger import next_generation, swap_ledger
from extender.binding.older_claims import drop_older_claims
from extender.binding.outcome import OTHER_NODES_MAY_DO, BindTarget, Bound, Chosen, Failure, NotBound, Outcome
from extender.binding.together import refused_together
from extender.cluster.candidates.holds import NOTHING, Hold
from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import (
    ALLOCATED_BY_DRA,
    claims_for,
    has_ended,
    planned_parts,
    read_placement,
    read_request,
    sharing_class_of,
)
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.rails import RailsOfGroup
from extender.cluster.state import NOT_LISTED, ClusterState
from extender.kit.clock import Clock
from topology.annotations import keys
from topology.annotations.records import Claim, PlacementRecord, encode_placement
from topology.errors import PayloadError, RequestError
from topology.placement.decide import Decision
from topology.placement.verdict import Placement, Rejection
from topology.request.gpu_request import GpuRequest, PodRequest

MAX_ROUNDS = 3


def bind(state: ClusterState, target: BindTarget, clock: Clock, *, deadline: float) -> Step[Outcome]:
    """Bind the pod; idempotent by its UID.

    `deadline` is in monotonic seconds: from then on nothing more is asked of the API, and what is not known by then is an
    error. The driver answers a request that is still out at that moment with `NoAnswer`. Binds to one node should follow
    each other; side by side they are as safe, and lose time on conflicts.
    """
    state.memory.offers.forget(target.uid)
    try:
        outcome = yield from _Bind(state, target, clock, deadline).run()
    finally:
        state.holds.release(target.uid)
    if isinstance(outcome, NotBound) and outcome.failure in OTHER_NODES_MAY_DO:
        state.memory.setbacks.fail(target.uid, target.node, clock().monotonic, target.namespace)
    else:
        state.memory.setbacks.settle(target.uid)
    return outcome


@dataclass(frozen=True, slots=True)
class _Again:
    """Another round, with the pod as it was just read, or else with a fresh read of it."""

    pod: Pod | None = None


class _Bind:
    """One call."""

    def __init__(self, state: ClusterState, target: BindTarget, clock: Clock, deadline: float) -> None:
        self._state = state
        self._target = target
        self._clock = clock
        self._deadline = deadline
        self._claimed: tuple[Claim, ...] = ()
        """The pod's claims in the ledger as we wrote it last."""
        self._written: str | None = None
        """That ledger."""
        self._in_doubt = False
        """A Binding that nobody knows the outcome of may have been sent, by us or by whoever made the claim before us."""
        self._unwritten: NotBound | None = None
        """What became of the last swap of the ledger, where nobody knows whether it was written."""
        self._said = ""
        """By the API server, of the last conflict."""
        self._chosen: Chosen | None = None
        self._alternative = state.holds.alternative(target.uid, target.node)
        """Of the call before this one; what we hold ourselves knows of no other node."""

    def run(self) -> Step[Outcome]:
        if not self._state.synced:
            return NotBound(Failure.NOT_SYNCED, NOT_LISTED)
        if refused := refused_together(self._state, self._target, self._clock().monotonic, self._deadline):
            return refused
        cached = self._state.pods.get(self._target.uid)
        tried_before = bool(self._state.may_be_claimed_on(self._target.uid))
        pod = cached.pod if cached and not tried_before else None
        for _ in range(MAX_ROUNDS):
            result = yield from self._round(pod)
            if not isinstance(result, _Again):
                return result
            pod = result.pod
        words = f"pod or node changed during each of {MAX_ROUNDS} attempts"
        return self._unwritten or NotBound(Failure.CONFLICT, f"{words}: {self._said}" if self._said else words)

    def _round(self, pod: Pod | None) -> Step[Outcome | _Again]:
        if pod is None:
            seen = yield from self._look()
            if isinstance(seen, NotBound):
                return seen
            pod = seen
        if settled := (yield from self._settled(pod)):
            return settled
        try:
            requested = read_request(pod, self._state.resource)
        except RequestError as error:
            return NotBound(Failure.BAD_REQUEST, str(error))
        if not requested.request.asks:
            return (yield from self._post(pod, PlacementRecord({}), {}))
        if pod.status.extended_resource_claim_status is not None:
            return NotBound(Failure.CLAIMED_BY_DRA, ALLOCATED_BY_DRA)
        view = self._state.views.get(self._target.node)
        if view is None:
            return NotBound(Failure.NODE_GONE, "node is not known")
        waited_seconds = self._state.indexes.gates.waited_seconds(pod, self._clock())
        with self._state.effort.bounded():
            placement = self._choose(view, request := requested.at_age(waited_seconds))
        if isinstance(placement, Rejection):
            return NotBound(Failure.NO_FIT, placement.message)
        if view.shape.topology_class is not None:
            self._chosen = Chosen(request, placement, view.shape.topology_class, self._alternative)
        record = record_of(view, requested, placement)
        try:  # before the claim: nothing is claimed that no Binding could carry
            annotations = {keys.PLACEMENT: encode_placement(record)}
        except PayloadError as error:
            return NotBound(Failure.NO_FIT, f"the placement cannot be written: {error.reason}")
        claimed = yield from self._claim(view, pod, record)
        if not isinstance(claimed, Pod):
            return claimed
        return (yield from self._post(claimed, record, annotations))

    def _look(self) -> Step[Pod | NotBound]:
        """Read the pod live."""
        reply = yield from self._ask(GetPod(self._target.namespace, self._target.name))
        match reply:
            case Done(Pod() as pod):
                self._state.pods.learn(pod)
                return pod
            case Gone():
                return (yield from self._gone())
        return NotBound(Failure.NO_ANSWER, f"the pod cannot be read: {in_words(reply)}")

    def _gone(self) -> Step[NotBound]:
        # A Binding in doubt may have put it on the node before it was deleted, and so may somebody who has renewed our claim
        # since, whose ledger is another one then: only `release` may let go of these.
        if not self._in_doubt:
            yield from self._withdraw(only_from=self._written)
        return NotBound(Failure.POD_GONE, "pod is gone")

    def _settled(self, pod: Pod) -> Step[Outcome | None]:
        """Return the outcome if this version of the pod leaves nothing to do."""
        if pod.metadata.uid != self._target.uid:
            return (yield from self._gone())
        if pod.spec.node_name == self._target.node:
            return self._on_the_node(pod)
        if pod.spec.node_name:
            yield from self._withdraw()
            return NotBound(Failure.BOUND_ELSEWHERE, "pod is bound to another node")
        if has_ended(pod):
            yield from self._withdraw()
            return NotBound(Failure.POD_ENDED, "pod has ended")
        if pod.metadata.deletion_timestamp is not None:
            return NotBound(Failure.POD_DELETED, "pod is being deleted")
        return None

    def _on_the_node(self, pod: Pod) -> Outcome:
        record = read_placement(pod)
        if record is not None:
            return Bound(record)
        try:
            needs_record = read_request(pod, self._state.resource).request.asks
        except RequestError:
            needs_record = True
        if needs_record:
            return NotBound(Failure.NO_RECORD, "pod was bound without a placement record")
        return Bound(PlacementRecord({}))

    def _choose(self, view: NodeView, request: GpuRequest) -> Decision:
        """Take the pod's claims, else what is held for it, else the best of what nobody else holds, else the best.

        What is held for members of a PodGroup that are being bound is left to them.
        """
        uid, now, holds = self._target.uid, self._clock().monotonic, self._state.holds
        has_claims = bool(view.claims_of(uid))
        held = None if has_claims else view.decide_on(holds.of(uid, view.name, now), request)
        if isinstance(held, Placement):
            verdict: Decision = held
        else:
            rails, others = RailsOfGroup(self._state, uid, now).on(view), holds.others(uid, now)
            to_come = self._state.shapes.to_come(view.shape)
            beside, kept = others.get(view.name, NOTHING), holds.kept(uid, now).get(view.name, NOTHING)
            verdict = view.decide_yielding(uid, request, beside, to_come, rails, kept)
        if isinstance(verdict, Placement):
            gpus = sum(1 << position for position in verdict.gpus)
            if has_claims or verdict is held:  # of these GPUs alone: what they cost was found out when they were chosen
                verdict = replace(verdict, value_lost=holds.value_lost(uid, view.name, gpus))
            hold = Hold.of(view.name, verdict, request, self._deadline)
            holds.put(uid, replace(hold, is_firm=holds.firm_of(uid, now) is not None))
        return verdict

    def _claim(self, view: NodeView, pod: Pod, record: PlacementRecord) -> Step[Pod | NotBound | _Again]:
        """Write the claims, and return the pod in the version that they are for."""
        own, uid = view.claims_of(pod.metadata.uid), pod.metadata.uid
        parts, sharing_class = planned_parts(pod, record), sharing_class_of(pod)
        if own and not are_same(own, claims_for(pod, parts, sharing_class)):
            fenced = yield from self._fence(pod)
            if not isinstance(fenced, Pod):
                return fenced
            pod = fenced
        alone = yield from self._drop_older(pod)
        if not isinstance(alone, Pod):
            return alone
        pod = alone
        self._in_doubt = self._in_doubt or bool(own)
        claims = claims_for(pod, parts, sharing_class)
        gpus = parts.keys()
        try:
            swap = swap_ledger(view, without={uid}, claims=claims)
        except PayloadError as error:
            return NotBound(Failure.LEDGER_FULL, f"the node's ledger cannot take the claim: {error.reason}")
        self._claimed = ()
        self._unwritten = None
        reply = yield from self._ask(swap)
        match reply:
            case Done(Node() as node):
                self._state.nodes.learn(node)
                after = self._state.views.get(view.name)
                if after and after.payloads.ledger.text == swap.ledger:
                    self._claimed, self._written = after.claims_of(uid), swap.ledger
                # A ResourceClaim may have been given one of them meanwhile.
                return _Again(pod) if after and not after.left_to_dra.isdisjoint(gpus) else pod
            case Conflict(message):
                self._said = message
                return (yield from self._look_at_node())
            case NoAnswer(message):
                self._state.memory.doubtful_claims.add(uid, view.name, swap.expected)
                self._unwritten = NotBound(Failure.NO_ANSWER, f"the claim's outcome is not known: {message}")
                return (yield from self._look_at_node())
            case Gone():
                return NotBound(Failure.NODE_GONE, "node is gone")
        return NotBound(Failure.REFUSED, f"the claim was refused: {in_words(reply)}")

    def _drop_older(self, pod: Pod) -> Step[Pod | NotBound | _Again]:
        """Return the pod in the version in which it has no claims on other nodes."""
        uid, drops = pod.metadata.uid, self._state.memory.claim_drops
        reply = yield from drop_older_claims(self._state, pod, self._target.node, self._ask)
        match reply:
            case Done(Pod() as alone):
                drops.forget(uid)
                return _Again() if self._state.may_be_claimed_on(uid) - {self._target.node} else alone
            case Conflict(message):
                self._said = message
                return _Again()
            case Gone():
                return _Again()
        drops.failed(uid, self._clock().monotonic, pod.metadata.namespace)
        words = f"the pod has claims on another node, which cannot be dropped: {in_words(reply)}"
        return NotBound(Failure.CLAIMS_ELSEWHERE, words)

    def _fence(self, pod: Pod) -> Step[Pod | NotBound | _Again]:
        """Move the pod's resourceVersion, so that no Binding prepared before can commit."""
        reply = yield from self._ask(fence(pod))
        match reply:
            case Done(Pod() as fenced):
                self._state.pods.learn(fenced)
                return fenced
            case Conflict(message):
                self._said = message
                return _Again()
            case Gone():
                return NotBound(Failure.POD_GONE, "pod is gone")
        return NotBound(Failure.NO_ANSWER, f"the pod cannot be fenced: {in_words(reply)}")

    def _look_at_node(self) -> Step[NotBound | _Again]:
        reply = yield from self._ask(GetNode(self._target.node))
        match reply:
            case Done(Node() as node):
                self._state.nodes.learn(node)
                return _Again()
            case Gone():
                return NotBound(Failure.NODE_GONE, "node is gone")
        unread = NotBound(Failure.NO_ANSWER, f"the node cannot be read: {in_words(reply)}")
        return self._unwritten or unread

    def _post(self, pod: Pod, record: PlacementRecord, annotations: Mapping[str, str]) -> Step[Outcome | _Again]:
        """Send the Binding once, and find out what came of it."""
        metadata = pod.metadata
        posted = yield from self._ask(
            BindPod(
                self._target.namespace,
                self._target.name,
                metadata.uid,
                metadata.resource_version,
                self._target.node,
                annotations,
            )
        )
        if isinstance(posted, Done):
            return Bound(record, self._chosen)
        self._in_doubt = self._in_doubt or isinstance(posted, NoAnswer)
        seen = yield from self._look()
        if isinstance(seen, NotBound):
            unknown = NotBound(Failure.NO_ANSWER, f"the Binding's outcome is not known: {in_words(posted)}")
            return unknown if seen.failure is Failure.NO_ANSWER else seen
        if settled := (yield from self._settled(seen)):
            return settled
        if seen.metadata.resource_version != metadata.resource_version:
            self._said = in_words(posted)
            return _Again(seen)
        if isinstance(posted, NoAnswer):
            return NotBound(Failure.NO_ANSWER, f"the Binding's outcome is not known: {posted.message}")
        if self._claimed:
            fenced = yield from self._ask(fence(seen))
            if isinstance(fenced, Done):
                yield from self._withdraw()
        return NotBound(Failure.REFUSED, f"the Binding was refused: {in_words(posted)}")

    def _withdraw(self, *, only_from: str | None = None) -> Step[None]:
        """Drop our claim, unless it is another one by now: then somebody has renewed it, perhaps. Others may stand beside it.

        `only_from`: and only while this is the ledger.
        """
        claimed, self._claimed, uid = self._claimed, (), self._target.uid
        newest = self._state.views.get(self._target.node)
        if not claimed or newest is None or not newest.is_ledger_known or newest.claims_of(uid) != claimed:
            return
        if only_from is not None and newest.payloads.ledger.text != only_from:
            return
        reply = yield from self._ask(swap_ledger(newest, without={uid}))
        if isinstance(reply, Done) and isinstance(reply.value, Node):
            self._state.nodes.learn(reply.value)

    def _ask(self, intent: Intent) -> Step[Reply]:
        if self._clock().monotonic >= self._deadline:
            return NoAnswer("out of time")
        return (yield intent)


def record_of(view: NodeView, requested: PodRequest, placement: Placement) -> PlacementRecord:
    """Return what the pod gets by a placement, and of shares what holds it to them."""
    gpus = tuple(view.devices[position] for position in placement.gpus)
    named = tuple(view.devices[position] for position in placement.shares) or gpus
    sharing = view.payloads.sharing if requested.request.is_share else None
    return PlacementRecord(
        requested.share_out(named),
        placement.affinity,
        placement.bandwidth,
        next_generation(view),
        view.nics_near(gpus),
        {container.name: container.memory_gib for container in requested.containers if container.memory_gib},
        sharing.limits if sharing else None,
    )


def are_same(some: Iterable[Claim], others: Iterable[Claim]) -> bool:
    """Whether claims promise the same GPUs, or shares of them as often, to whichever container."""
    return Counter((each.gpu, each.memory_gib) for each in some) == Counter(
        (each.gpu, each.memory_gib) for each in others
    )
