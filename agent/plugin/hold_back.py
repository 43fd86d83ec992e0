"""Whether a container may start with the GPUs that the kubelet will give it: asked again before every start.

What is refused here is held back: the kubelet tries again with growing pauses, and the container starts once we agree. So this
is where a wrong guess ends: nothing starts with GPUs that are promised to somebody else. It ends for the whole pod: once one
of its containers runs, the ledger follows what all of them hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.plugin.choice.forms import DeviceForm, Plans
from agent.plugin.pods.listed_pods import Key, ListedPod


@dataclass(frozen=True, slots=True)
class Served:
    """What one Allocate handed out."""

    namespace: str
    """Empty, like the name, when it could not be told who asked."""
    name: str
    uid: str
    """Empty for a pod without claims."""
    gpus: frozenset[str]

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name


def is_as_served(gpus: frozenset[str], pods: Sequence[ListedPod], served: Iterable[Served]) -> bool:
    """Whether the pod with these GPUs is the one that they were handed out to, like all others that it holds."""
    holders = [pod for pod in pods if pod.gpus & gpus]
    given = {gpu for item in served for gpu in item.gpus if holders and item.key == holders[0].key}
    return len(holders) == 1 and gpus | holders[0].gpus <= given


def is_by_plan(gpus: frozenset[str], served: Iterable[Served], plans: Plans) -> bool:
    """Whether some plan, be it of now or of when they were handed out, has these GPUs together."""
    return any(gpus <= item.gpus for item in served if item.uid) or any(plan.covers(gpus) for plan in plans.values())


def may_start(
    gpus: frozenset[str], pods: Sequence[ListedPod], served: Iterable[Served], plans: Plans, form: DeviceForm
) -> str | None:
    """Return why a container with these devices has to wait, or `None`."""
    holders = [pod for pod in pods if pod.gpus & gpus]
    if len(holders) > 1:
        return "the kubelet lists its GPUs with several pods"
    if not holders:
        # An ordinary init container, which the kubelet does not list, while it does list its pod. Where that is not listed
        # either it is gone, and the kubelet, which forgets its GPUs with each List, would start the container without any.
        there = {pod.key for pod in pods}
        given = any(gpus <= item.gpus for item in served if not item.name or item.key in there)
        given = given or any(plan.covers(gpus) for key, plan in plans.items() if key in there)
        return None if given else "no pod that the kubelet lists was given these GPUs"
    plan = plans.get(holders[0].key)
    if is_as_served(gpus, pods, served):
        return None
    if plan and plan.exact:
        return None if plan.covers(gpus | holders[0].gpus) else "its GPUs are not those promised to the pod"
    if plan and plan.covers(gpus):
        return None
    return form.robbed(gpus, pods, holders[0].key, plans)
