"""The pods that wait, decided one after the other as the extender would, in memory: nothing is written.

GPUs, labels and taints decide. CPU, memory and affinity are kube-scheduler's, and are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from extender.binding.bind import bind
from extender.binding.intents import BindPod, Conflict, Done, GetNode, GetPod, Intent, Reply, SwapLedger
from extender.binding.outcome import BindTarget, NotBound, Outcome
from extender.cluster.objects.gpu_pods import GpuPod, priority_of
from extender.cluster.objects.kinds import Node, ObjectMeta, Pod
from extender.cluster.objects.pod_demand import asked_by
from extender.cluster.objects.versions import MAX_DIGITS
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.inspect.inspection import Answer, Explanation, PodInfo, explain, pod_info
from extender.inspect.pods import what_counts
from extender.kit.clock import Instant
from topology.annotations import keys


class Step(Answer):
    """What becomes of one pod."""

    pod: PodInfo
    """On its node, where it fits."""
    reason: str = ""
    """Why it goes on waiting: what most nodes say."""


class Replay(Answer):
    """What becomes of all pods that wait."""

    steps: tuple[Step, ...]
    """In the order in which they were decided: by priority, then by age."""


class NotAdded(Exception):
    """A pod cannot be created in this cluster; the text says why."""


def add(state: ClusterState, pods: Iterable[Pod]) -> None:
    """Let pods wait that nobody has created, those with GPUs; raises `NotAdded`."""
    feed, is_empty = PodFeed(state), True
    for pod in pods:
        if not asked_by(pod, state.resource).names_gpus:
            continue
        if state.pods.find(pod.metadata.namespace, pod.metadata.name):
            raise NotAdded(f"pod {pod.metadata.namespace}/{pod.metadata.name} exists already")
        if kept := feed.keep(pod):
            feed.changed(kept)
            is_empty = False
    if is_empty:
        raise NotAdded(f"no pod asks for {', '.join(what_counts(state.resource))}")


def replay(state: ClusterState, now: Instant) -> Replay:
    """Decide about every pod that waits; `state` is changed as though each had been bound."""
    waiting = sorted((pod for pod in state.pods if _waits(pod)), key=_turn)
    return Replay(steps=tuple(_decided(state, pod, now) for pod in waiting))


def _waits(pod: GpuPod) -> bool:
    return pod.is_alive and pod.node is None and not pod.pod.spec.scheduling_gates


def _turn(pod: GpuPod) -> tuple[int, str, tuple[str, str]]:
    return -priority_of(pod.pod), pod.pod.metadata.creation_timestamp or "", pod.key


def _decided(state: ClusterState, pod: GpuPod, now: Instant) -> Step:
    explanation = explain(state, *pod.key, now)
    assert explanation is not None, "it is one of the state's own"
    if explanation.scheduler_problem or explanation.problem or not explanation.fits:
        return Step(
            pod=explanation.pod,
            reason=explanation.scheduler_problem or explanation.problem or _why_nowhere(explanation),
        )
    target = BindTarget(*pod.key, pod.uid, explanation.fits[0].node)
    outcome = _Cluster(state, pod.pod).run(target, now)
    if isinstance(outcome, NotBound):
        return Step(pod=explanation.pod, reason=outcome.message)
    bound = state.pods.get(pod.uid)
    assert bound is not None, "it has just been bound"
    return Step(pod=pod_info(state, bound))


def _why_nowhere(explanation: Explanation) -> str:
    why = (
        f"{refusal.nodes} node{'s' if refusal.nodes > 1 else ''}: {refusal.message}"
        for refusal in explanation.refusals[:2]
    )
    return "; ".join(why) or "there is no node"


class _Cluster:
    """Answers what binding one pod asks of the API server, from memory."""

    def __init__(self, state: ClusterState, pod: Pod) -> None:
        self._state = state
        self._pod = pod

    def run(self, target: BindTarget, now: Instant) -> Outcome:
        """Return what came of it."""
        steps = bind(self._state, target, lambda: now, deadline=now.monotonic + 1)
        try:
            intent = next(steps)
            while True:
                intent = steps.send(self._reply(intent))
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome

    def _reply(self, intent: Intent) -> Reply:
        match intent:
            case GetPod():
                return Done(self._pod)
            case GetNode(name):
                return Done(self._node(name))
            case SwapLedger(node=name, ledger=ledger):
                node = self._node(name)
                return Done(replace(node, metadata=_annotated(node.metadata, {keys.LEDGER: ledger})))
            case BindPod(node=name, annotations=annotations):
                self._bind(name, annotations)
                return Done(None)
        return Conflict("nobody else writes here")

    def _bind(self, node: str, annotations: Mapping[str, str]) -> None:
        metadata = _annotated(self._pod.metadata, annotations)
        self._pod = replace(self._pod, metadata=metadata, spec=replace(self._pod.spec, node_name=node))
        self._state.pods.changed(self._pod)

    def _node(self, name: str) -> Node:
        return self._state.views[name].node


def _annotated(metadata: ObjectMeta, annotations: Mapping[str, str]) -> ObjectMeta:
    """Return the metadata of the next version."""
    before = metadata.resource_version or "0"
    is_number = before.isdecimal() and len(before) <= MAX_DIGITS
    version = str(int(before) + 1) if is_number else f"{before}+1"
    return replace(metadata, resource_version=version, annotations={**(metadata.annotations or {}), **annotations})
