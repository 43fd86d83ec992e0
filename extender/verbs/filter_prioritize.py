"""filter and prioritize: from one call's arguments and the state to the answer; memory only, and nothing here can fail.

A few rules of kube-scheduler shape the answers (docs/explanation/design.md, "the verbs"):

- When any node fits, the answer holds the best `candidates` and nothing else. Reasons are sent when none fits, where the pod's
  event and preemption read them.
- Default preemption tries in-tree filters only, and those have passed already on every node of the call. It could never
  cure our refusal, and trips over it. So refusals are "unresolvable", with one exception. On the node that the pod is
  nominated for, it would call the nomination dead while its victims are still leaving.
- A pod of a group is offered the nodes of the domain that the group fills now, and no others. So all that prioritize or
  another scorer can choose from is right for the group.
- Holds steer, they never turn a yes into a no: if nothing fits beside them, they do not count.
- That does not go for the pods of one PodGroup. kube-scheduler tries them one after the other and binds none before the
  last. Each leaves to the earlier ones what they were offered, and is offered one node, so that we know which (`gangs`).
- A member is refused while kube-scheduler counts others as placed whose binds will be refused. It is tried again with them.
- After a failed bind the node ranks last for this pod, or it would win for ever. It still is named where no other one
  fits. About the nominated node kube-scheduler asks alone, and about all others only when that is refused: so it is,
  once.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from extender.cluster.candidates.gangs import gang_of
from extender.cluster.candidates.holds import Hold, Ranked
from extender.cluster.objects.gpu_pods import ALLOCATED_BY_DRA
from extender.cluster.state import NOT_LISTED, ClusterState
from extender.config.defaults import HOLD_SECONDS
from extender.kit.clock import Instant
from extender.verbs.as_if_gone import place_as_if_gone
from extender.verbs.names import Names
from extender.verbs.pod_context import PodContext
from extender.verbs.preparing import prepare, ranked
from extender.verbs.ranking import Ranking
from extender.verbs.wire import MAX_SCORE, ExtenderArgs, ExtenderFilterResult, HostPriority
from topology.effort import Allowance, Search, finish
from topology.errors import RequestError
from topology.placement.verdict import UNDECIDED, Placement

CANDIDATES = 16
STEPS_BACK = "the pod could not be bound to the node lately, so others come first"
WAITS_FOR_OTHERS = "other pods of its PodGroup could not be bound, and are to be tried with it"


def filter_nodes(
    state: ClusterState,
    args: ExtenderArgs,
    now: Instant,
    *,
    candidates: int = CANDIDATES,
    hold_seconds: float = HOLD_SECONDS,
) -> ExtenderFilterResult:
    """Return the nodes of the call on which the pod may go, best first, at most `candidates` of them (0: all)."""
    return finish(filter_in_slices(state, args, now, candidates, hold_seconds))


def filter_in_slices(
    state: ClusterState, args: ExtenderArgs, now: Instant, candidates: int, hold_seconds: float
) -> Search[ExtenderFilterResult]:
    """Do the same, with pauses while what is new to us is decided on; what is answered holds at the end."""
    if not state.synced:
        return ExtenderFilterResult([], error=NOT_LISTED)
    names = args.names
    try:
        context = PodContext.read(state, args.pod, now)
    except RequestError as error:
        return ExtenderFilterResult([], None, dict.fromkeys(names, str(error)))
    if not context.request.asks:
        return args.passing([*dict.fromkeys(names)])
    if args.pod.status.extended_resource_claim_status is not None:
        return ExtenderFilterResult([], None, dict.fromkeys(names, ALLOCATED_BY_DRA))
    allowance = Allowance()
    yield from prepare(state, context, allowance)
    is_member = gang_of(args.pod) is not None
    with state.effort.bounded(allowance):
        answer = _filter(state, context, args, 1 if is_member else candidates, hold_seconds)
    if isinstance(answer, ExtenderFilterResult):
        return answer
    placed = (yield from place_as_if_gone(state, context, names, allowance)) if is_member else None
    if placed is not None:
        _hold(state, context, (Ranked(*placed),), hold_seconds)
        return args.passing([placed[0]])
    with state.effort.bounded(allowance):
        return _refusal(state, context, answer, names)


def _filter(
    state: ClusterState, context: PodContext, args: ExtenderArgs, candidates: int, hold_seconds: float
) -> ExtenderFilterResult | Ranking:
    """Return the nodes that are offered, or the ranking in which there is none."""
    names, uid, now = args.names, args.pod.metadata.uid, context.now.monotonic
    state.holds.release(uid)
    state.holds.void(state.memory.gangs.ask(args.pod))
    state.memory.setbacks.come_back(uid, context.owner, now, args.pod.metadata.namespace)
    if state.memory.gangs.others_are_refused(uid, now):
        state.memory.gangs.end_trial(uid)
        return ExtenderFilterResult([], None, dict.fromkeys(names, WAITS_FOR_OTHERS))
    if _is_to_be_passed_over(state, context, names):
        return ExtenderFilterResult([], dict.fromkeys(names, STEPS_BACK))
    ranking, chosen = _offer(state, context, Names(names), candidates)
    if not chosen:
        return ranking
    if len(chosen) == 1:  # then kube-scheduler does not ask for scores
        _announce(state, context, ranking, chosen, hold_seconds)
    return args.passing(chosen)


def is_refusal(result: ExtenderFilterResult) -> bool:
    """Whether no node will do, and a second look may say otherwise.

    A node that only steps back sends kube-scheduler from the nominated node to the others. A pod that waits for others of its
    PodGroup must not be placed before kube-scheduler has tried them.
    """
    if result.node_names or result.error or STEPS_BACK in (result.failed_nodes or {}).values():
        return False
    unresolvable = result.failed_and_unresolvable_nodes or {}
    return next(iter(unresolvable.values()), None) != WAITS_FOR_OTHERS  # it holds for all nodes, or for none


def is_undecided(result: ExtenderFilterResult) -> bool:
    """Whether no node will do, and one of them might when the search for its best GPUs has come to its end."""
    refusals = result.failed_and_unresolvable_nodes or {}
    return not result.node_names and UNDECIDED.sentence in refusals.values()


def prioritize_nodes(
    state: ClusterState, args: ExtenderArgs, now: Instant, *, hold_seconds: float = HOLD_SECONDS
) -> list[HostPriority]:
    """Return a score of 0 to 10 for each node of the call, 10 for one of them; empty without a preference."""
    return finish(prioritize_in_slices(state, args, now, hold_seconds))


def prioritize_in_slices(
    state: ClusterState, args: ExtenderArgs, now: Instant, hold_seconds: float
) -> Search[list[HostPriority]]:
    """Do the same, with pauses as in `filter_in_slices`."""
    if not state.synced:
        return []
    try:
        context = PodContext.read(state, args.pod, now)
    except RequestError:
        return []
    uid, named = args.pod.metadata.uid, dict.fromkeys(args.names)
    state.memory.offers.forget(uid)
    if not context.request.asks:
        return []
    ranking = yield from ranked(state, context, Names(named))
    names, best_two = [*named], [*islice(ranking.best_first(), 2)]
    if not best_two:
        return [HostPriority(name, 0) for name in names]
    _announce(state, context, ranking, best_two, hold_seconds)
    best = best_two[0]
    scores, away = ranking.scores(names), context.away(state)
    if away and best not in away:
        scores = [None if name in away else score for name, score in zip(names, scores, strict=True)]
    level_of = _levels(set(scores))
    priorities = [*map(HostPriority, names, map(level_of.__getitem__, scores))]
    priorities[names.index(best)] = HostPriority(best, MAX_SCORE)
    return priorities


def _levels(scores: Collection[float | None]) -> dict[float | None, int]:
    """Return score → 1..9, in proportion to how near the best it is; 10 is for one single node, 0 for those that do not fit.

    kube-scheduler takes integers 0 to 10, and breaks ties at random.

    >>> _levels([3.0, 2.9, 1.0, None])
    {None: 0, 3.0: 9, 2.9: 8, 1.0: 1}
    """
    fitting = [score for score in scores if score is not None]
    if not fitting:
        return {None: 0}
    low, top = min(fitting), max(fitting)
    span, steps = top - low, MAX_SCORE - 2
    return {None: 0} | {score: 1 + int(steps * (score - low) / span) if span > 0 else 1 + steps for score in fitting}


def _offer(state: ClusterState, context: PodContext, names: Names, candidates: int) -> tuple[Ranking, list[str]]:
    """Take the best nodes, but not again those that the pod came back from, before it has been offered all others."""
    uid = context.pod.metadata.uid
    refused = state.memory.offers.refused(uid, state.shapes) if candidates else frozenset()
    refused = frozenset(name for name in refused if name in names)
    ranking = context.rank_for_now(state, names.without(refused) if refused else names)
    if refused and ranking.best is None:
        state.memory.offers.forget(uid)
        ranking = context.rank_for_now(state, names)
    if not candidates:
        return ranking, list(ranking.best_first())
    chosen = list(islice(ranking.best_first(), candidates))
    state.memory.offers.add(uid, chosen, state.shapes, context.pod.metadata.namespace)
    return ranking, chosen


def _is_to_be_passed_over(state: ClusterState, context: PodContext, names: Collection[str]) -> bool:
    """Whether the call is about the nominated node alone, and that steps back; the same call again is not refused."""
    nominated, uid = context.pod.status.nominated_node_name, context.pod.metadata.uid
    if nominated is None or len(names) != 1 or nominated not in names:
        return False
    return nominated in context.away(state) and state.memory.setbacks.pass_over(uid, context.owner, nominated)


def _announce(state: ClusterState, context: PodContext, ranking: Ranking, best: list[str], hold_seconds: float) -> None:
    """Take note of the winner, the first one, and hold what it is to give."""
    uid, now, verdicts = context.pod.metadata.uid, context.now.monotonic, ranking.verdicts(best)
    ranked = tuple(Ranked(name, verdict) for name, verdict in verdicts.items() if isinstance(verdict, Placement))
    if ranked:
        _hold(state, context, ranked, hold_seconds)
        if gang_of(context.pod) is None:  # else its group may have been what came to nothing
            state.memory.setbacks.announce(uid, ranked[0].node, now, context.pod.metadata.namespace)


def _hold(state: ClusterState, context: PodContext, ranked: tuple[Ranked, ...], hold_seconds: float) -> None:
    uid, winner = context.pod.metadata.uid, ranked[0]
    hold = Hold.of(winner.node, winner.placement, context.request, context.now.monotonic + hold_seconds, ranked)
    state.holds.put(uid, hold)
    state.memory.gangs.offer(uid, hold, context.request)


def _refusal(
    state: ClusterState, context: PodContext, ranking: Ranking, names: Collection[str]
) -> ExtenderFilterResult:
    listed, nominated = [*names], context.pod.status.nominated_node_name
    refusals = ranking.refusals(listed)
    alike = {id(refusal): refusal for refusal in refusals if refusal}.values()  # one for all nodes that share it
    uid, namespace = context.pod.metadata.uid, context.pod.metadata.namespace
    if state.pods.get(uid) or state.pods.tombstone(uid) is None:  # one that has left meanwhile waits no more
        reasons = frozenset(rejection.reason for rejection, _ in alike)
        state.memory.refusals.add(uid, reasons, context.now.monotonic, namespace)
    unresolvable = {name: refusal[1] for name, refusal in zip(listed, refusals, strict=True) if refusal}
    failed: dict[str, str] = {}
    if nominated in unresolvable:
        refusal = refusals[listed.index(nominated)]
        if refusal and refusal[0].resolvable:
            failed[nominated] = unresolvable.pop(nominated)
    return ExtenderFilterResult([], failed or None, unresolvable or None)
