"""Drop the claims that a pod has on other nodes, before it gets any on the node of a bind.

An earlier bind has left them, whose Binding may still be under way. So the pod is fenced first, as an orphan is in
`release`. Each ledger is replaced only as it was before the fence, so a claim that was renewed since then survives. A
claim that got no answer is treated alike: once the ledger is another one, that claim cannot arrive. So a pod never claims
more than it asks for, however many nodes it tries in vain.

A process cannot drop what it has not heard of yet. That is a claim by another process at the same moment, or one that
arrives after its process has died. The next bind drops it; until then both claims are safe, and one of them is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from extender.binding.intents import Conflict, Done, GetNode, Intent, NoAnswer, Reply, Step, fence
from extender.binding.ledger import swap_ledger
from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState


def drop_older_claims(state: ClusterState, pod: Pod, node: str, ask: Callable[[Intent], Step[Reply]]) -> Step[Reply]:
    """Leave the pod, which was just read unbound, no claims but those on `node`.

    Returns `Done` with the pod in its present version, or else the reply that was in the way.
    """
    uid = pod.metadata.uid
    views = [state.views[name] for name in sorted(state.may_be_claimed_on(uid)) if name != node]
    if not views:
        return Done(pod)
    if lost := next((view.name for view in views if not view.is_ledger_known), None):
        return NoAnswer(f"the ledger of {lost} cannot be relied on yet")
    fenced = yield from ask(fence(pod))
    if not (isinstance(fenced, Done) and isinstance(fenced.value, Pod)):
        return fenced
    state.pods.learn(fenced.value)
    dropped = yield from drop_claims(state, views, {uid}, ask)
    return fenced if isinstance(dropped, Done) else dropped


def drop_claims(
    state: ClusterState, views: Iterable[NodeView], uids: Collection[str], ask: Callable[[Intent], Step[Reply]]
) -> Step[Reply]:
    """Write these ledgers without the claims of these pods, each only as it was read; returns `Done`, or what was in the way."""
    for view in views:
        reply = yield from ask(swap_ledger(view, without=uids))
        if isinstance(reply, Conflict):
            newest = yield from ask(GetNode(view.name))
            if isinstance(newest, Done) and isinstance(newest.value, Node):
                state.nodes.learn(newest.value)
        if not (isinstance(reply, Done) and isinstance(reply.value, Node)):
            return reply
        state.nodes.learn(reply.value)
    return Done(None)
