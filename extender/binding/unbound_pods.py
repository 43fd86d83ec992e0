"""Make sure, before a ledger is written where none can be relied on, that no Binding is under way and no bound pod unheard of.

Caches prove neither: a pod that was created and claimed for within the delay of our watch is in none. So both are read
live: one list of the unbound pods for all nodes without a ledger, and one list of each node's own pods. The second is
only compared with the cache, which belongs to the watch. The node waits until the watch has heard of the difference.
"""

from __future__ import annotations

from extender.binding.intents import Conflict, Done, GetPodVersion, Gone, ListPods, Reply, Step, fence, in_words
from extender.cluster.objects.gpu_pods import has_ended, may_have_been_bound_by_us, read_gpu_pod
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState

NOWHERE = ""


def fence_all_unbound(state: ClusterState, node: str) -> Step[bool]:
    """Fence every pod that may have a Binding under way since the node's ledger was lost; says whether all are fenced.

    A list that somebody has asked for is fenced to its end before another one is, so that each serves somebody.
    """
    while state.fences.is_needed(node):
        if not (yield from list_unbound(state)):
            return False
        for pod in state.fences.to_fence:
            if not (yield from fence_listed(state, pod)):
                return False
    return True


def list_unbound(state: ClusterState) -> Step[bool]:
    """List the pods that may have a Binding under way, unless some of the last list are still to be fenced; `False`: failed."""
    if state.fences.to_fence:
        return True
    sent = state.fences.now()
    reply = yield ListPods(NOWHERE)
    if not (isinstance(reply, Done) and isinstance(reply.value, tuple)):
        state.fences.not_listed(in_words(reply))
        return False
    state.fences.listed(sent, (pod for pod in reply.value if _may_be_bound(state, pod)))
    return True


def fence_listed(state: ClusterState, pod: Pod) -> Step[bool]:
    """Fence one pod of the list, in any order and beside others; says whether no Binding of the listed version can commit.

    Nor may an allocation of its claims: these are taken back after a reply that says that the pod has left its version.
    """
    reply = yield fence(pod)
    may_hold_devices = state.claimed.has(pod) and not isinstance(reply, Conflict | Gone)
    if isinstance(reply, Done) and isinstance(reply.value, Pod):
        state.pods.learn(reply.value)
    elif may_hold_devices or not (yield from _has_left_version(pod)):
        state.fences.stays(pod, in_words(reply))
        return False
    state.fences.left(pod)
    return True


def hear_of_bound(state: ClusterState, node: str) -> Step[bool]:
    """Say whether the pods that are bound to the node, and ask for GPUs, are those that are known to be."""
    reply = yield ListPods(node)
    if not (isinstance(reply, Done) and isinstance(reply.value, tuple)):
        return False
    pods = reply.value
    for pod in pods:
        state.pods.learn(pod)
    exist = {pod.metadata.uid for pod in pods}
    return exist.issuperset(pod.uid for pod in state.pods.bound_to(node)) and all(
        _is_known(state, pod) for pod in pods if _asks(state, pod)
    )


def _may_be_bound(state: ClusterState, pod: Pod) -> bool:
    """Whether a Binding of this version of the pod may be under way, or an allocation of its claims.

    The server refuses Bindings of gated pods, and gates never come back. Nobody sends one for a pod that is so large that it
    could not be fenced: otherwise whoever fills a pod would keep nodes closed.
    """
    is_open = not pod.spec.scheduling_gates or state.claimed.has(pod)
    return is_open and not has_ended(pod) and may_have_been_bound_by_us(pod) and _asks(state, pod)


def _asks(state: ClusterState, pod: Pod) -> bool:
    """Whether it may be given GPUs; what its claims are for is not known before the watch has shown them."""
    return state.claimed.has(pod) or read_gpu_pod(pod, state.resource) is not None


def _is_known(state: ClusterState, pod: Pod) -> bool:
    uid, node = pod.metadata.uid, pod.spec.node_name
    cached, claiming, tombstone = state.pods.get(uid), state.claimed.get(uid), state.pods.tombstone(uid)
    if cached is not None:
        return cached.node == node
    if claiming is not None:
        return claiming.spec.node_name == node
    return tombstone is not None and tombstone.gone


def _has_left_version(pod: Pod) -> Step[bool]:
    """Read live whether the pod has changed or is gone; what else there is of it, and how much, does not matter."""
    reply: Reply = yield GetPodVersion(pod.metadata.namespace, pod.metadata.name)
    match reply:
        case Done(Pod() as live):
            was, now = pod.metadata, live.metadata
            return (was.uid, was.resource_version) != (now.uid, now.resource_version)
        case Gone():
            return True
    return False
