"""Take back claims of pods that do not use their GPUs any more, with proof (see `standing`), and write that into the ledger.

A GPU with a dead claim is free at once, and the next bind on its node replaces the claim. The write here keeps the ledger
honest. As a change of the Node it also wakes the pods that kube-scheduler has put aside.

An unbound pod's claim that nobody has renewed for a while is an orphan of a bind that died. It is fenced first, and then
dropped from the ledger *as it was read before the fence*. If a bind renews it in between, the write fails and the claim
survives. Two kinds of claims are not orphans. A claim of a pod behind our gate belongs to a plan, which starts or is taken
back whole. A claim of a pod that is pinned to the node stays: kube-scheduler may bind it there without us.

The node's agent is asked for what only it can tell, with the node's version that was read when the pod was already gone.
A report that names a later one rests on a later look.

The same generator form as `bind`: kill it anywhere, run it twice, run it beside another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.binding.intents import AskForLook, Conflict, Done, GetNode, GetPodVersion, Gone, Step, fence, in_words
from extender.binding.ledger import swap_ledger
from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.ownership.standing import Standing
from extender.cluster.state import ClusterState
from topology.annotations.records import Claim

ORPHAN_SECONDS = 60.0
UNSEEN_SECONDS = 5.0
"""A claim may be heard of before its pod is: a live read at once would be for nothing."""
RETRY_SECONDS = 5.0
"""Between two attempts at the same claim."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done about the claims of one node."""

    node: str
    dead: bool = False
    """Some claims are proven dead, and the ledger does not say so yet."""
    orphans: frozenset[str] = frozenset()
    """UIDs of unbound pods whose claims nobody has renewed for long."""
    unseen: frozenset[tuple[str, str, str]] = frozenset()
    """UID, namespace and name of claims' pods that are not in the cache."""
    gone: tuple[Claim, ...] = ()
    """One claim of each pod that is gone; the node's agent is asked, after a live read of the node."""


class ClaimTimers:
    """Remembers since when claims have stood unchanged without being held: the only timer of the protocol.

    It decides how soon something is looked into, and never whether it is safe.
    """

    def __init__(self, *, orphan_seconds: float = ORPHAN_SECONDS, unseen_seconds: float = UNSEEN_SECONDS) -> None:
        self._patience = {Standing.PENDING: orphan_seconds, Standing.UNSEEN: unseen_seconds, Standing.GONE: 0.0}
        self._since: dict[tuple[str, Claim, Standing], float] = {}

    def due(self, state: ClusterState, now: float) -> list[Task]:
        """Return what is to be done at `now` (monotonic seconds), by node name. Call it every second or two."""
        self._since, before = {}, self._since
        tasks = (self._task(state, state.views[name], before, now) for name in sorted(state.conditions.unsettled))
        return [task for task in tasks if task != Task(task.node)]

    def _task(
        self, state: ClusterState, view: NodeView, before: dict[tuple[str, Claim, Standing], float], now: float
    ) -> Task:
        ripe: dict[Standing, list[Claim]] = {standing: [] for standing in self._patience}
        for claim, standing in view.claims:
            if standing in self._patience and not _is_awaited(state, view.name, claim):
                key = (view.name, claim, standing)
                self._since[key] = before.get(key, now)
                if now - self._since[key] >= self._patience[standing]:
                    self._since[key] = now - self._patience[standing] + RETRY_SECONDS
                    ripe[standing].append(claim)
        gone = {claim.uid: claim for claim in ripe[Standing.GONE]}
        return Task(
            view.name,
            dead=any(standing is Standing.FREE for _, standing in view.claims),
            orphans=frozenset(claim.uid for claim in ripe[Standing.PENDING]),
            unseen=frozenset((claim.uid, claim.namespace, claim.name) for claim in ripe[Standing.UNSEEN]),
            gone=tuple(claim for claim in gone.values() if not state.is_asked(view.name, claim)),
        )


def _is_awaited(state: ClusterState, node: str, claim: Claim) -> bool:
    """Whether the claim's pod waits in our queue, whose planner carries it on or takes it back, or can only come to this node."""
    pod = state.pods.get(claim.uid)
    return pod is not None and pod.is_alive and pod.node is None and (pod.has_plan_gate or pod.pinned_to == node)


def release(state: ClusterState, task: Task) -> Step[tuple[Claim, ...]]:
    """Do what is due on one node; returns the claims that left its ledger."""
    view = state.views.get(task.node)
    if view is None or not view.is_ledger_known:
        return ()
    yield from _find(state, task)
    if task.gone:
        yield from _ask(state, task)
    fenced = yield from _fence_orphans(state, task)
    dropped = tuple(claim for claim, standing in view.claims if standing is Standing.FREE or claim.uid in fenced)
    if not dropped:
        return ()
    reply = yield swap_ledger(view, without=fenced)
    if not (isinstance(reply, Done) and isinstance(reply.value, Node)):
        return ()
    state.nodes.learn(reply.value)
    return dropped


def _find(state: ClusterState, task: Task) -> Step[None]:
    """Read live what has become of pods that are not in the cache."""
    for uid, namespace, name in sorted(task.unseen):
        reply = yield GetPodVersion(namespace, name)
        match reply:
            case Done(Pod() as found) if found.metadata.uid != uid:
                state.pods.learn_gone(uid)
            case Gone():
                state.pods.learn_gone(uid)


def _ask(state: ClusterState, task: Task) -> Step[None]:
    """Read live the node of pods that are gone, and have its agent look later than that."""
    reply = yield GetNode(task.node)
    if not (isinstance(reply, Done) and isinstance(reply.value, Node)):
        return
    state.nodes.learn(reply.value)
    for claim in task.gone:
        if not state.has_baseline(task.node, claim):
            state.set_baseline(task.node, claim)
    yield from ask_for_look(state, reply.value)


def ask_for_look(state: ClusterState, node: Node) -> Step[bool]:
    """Have the node's agent look later than this version of the node; returns whether that is written."""
    metadata = node.metadata
    reply = yield AskForLook(metadata.name, metadata.uid, metadata.resource_version)
    if not (isinstance(reply, Done) and isinstance(reply.value, Node)):
        return False
    state.nodes.learn(reply.value)
    return True


def _fence_orphans(state: ClusterState, task: Task) -> Step[frozenset[str]]:
    """Fence the pods that still are unbound in the very version that we know; returns the UIDs of those."""
    fenced = set()
    for uid in sorted(task.orphans):
        orphan = state.pods.get(uid)
        if orphan is None or orphan.node is not None:
            continue
        reply = yield fence(orphan.pod)
        if isinstance(reply, Done) and isinstance(reply.value, Pod):
            state.pods.learn(reply.value)
            fenced.add(uid)
        elif not isinstance(reply, Conflict | Gone):
            state.fences.stays(orphan.pod, in_words(reply))
    return frozenset(fenced)
