"""The two forms in which a GPU is handed out, whole and in shares: what is decided of each question of the kubelet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.plugin.choice.choose import AllocationRefusal, Ask, Grant, ScorerPort, accept, choose
from agent.plugin.choice.shares import Books, Shareable, accept_share, choose_share
from agent.plugin.devices.offers import gpu_of
from agent.plugin.pods.identify import Identity
from agent.plugin.pods.listed_pods import Key, ListedPod, PodPlan, listed_gpus, promised_to_others, told_by
from topology.node.silicon import Silicon

Plans = Mapping[Key, PodPlan]
"""All of the node."""


class DeviceForm(Protocol):
    """What one resource of ours stands for; `pods` are those that the kubelet lists."""

    @property
    def is_shared(self) -> bool:
        """Whether containers have to be held to what they get."""
        ...

    def may_ask(self, plan: PodPlan) -> bool:
        """Whether a pod with this plan asks for the resource."""
        ...

    def choose(self, ask: Ask, pods: Sequence[ListedPod], who: Identity, plans: Plans) -> Grant | AllocationRefusal:
        """Say which devices the kubelet should take."""
        ...

    def accept(
        self, devices: frozenset[str], pods: Sequence[ListedPod], who: Identity, plans: Plans
    ) -> Grant | AllocationRefusal:
        """Judge those that it took."""
        ...

    def robbed(self, devices: frozenset[str], pods: Sequence[ListedPod], holder: Key, plans: Plans) -> str | None:
        """Return why a pod that no plan gives these devices must not start with them, or `None`."""
        ...

    def to_be_vacant(self, devices: frozenset[str], others: Iterable[str] | None) -> frozenset[str]:
        """Return the devices on which nobody may compute any more when a container starts with these.

        `others` are what all containers are known to hold; `None` while the kubelet does not say.
        """
        ...


@dataclass(frozen=True, slots=True)
class Whole:
    """GPUs, or MIG slices, that a container has for itself."""

    scorer: Callable[[], ScorerPort]
    elsewhere: Callable[[], frozenset[str]] = frozenset
    """The devices of other resources."""
    silicon: Callable[[], Silicon] = Silicon
    """Which devices are of one GPU."""
    is_shared: bool = False

    def may_ask(self, plan: PodPlan) -> bool:
        """Whether a pod with this plan asks for the resource: a pod asks for one kind."""
        return not plan.is_share and not plan.gpus <= self.elsewhere()

    def choose(self, ask: Ask, pods: Sequence[ListedPod], who: Identity, plans: Plans) -> Grant | AllocationRefusal:
        """Say which GPUs the kubelet should take: none of which anybody holds a part."""
        return choose(ask, _taken(pods), who, plans, self.scorer(), self.silicon())

    def accept(
        self, devices: frozenset[str], pods: Sequence[ListedPod], who: Identity, plans: Plans
    ) -> Grant | AllocationRefusal:
        """Judge those that it took."""
        return accept(devices, _taken(pods), who, plans, self.scorer(), self.silicon())

    def robbed(self, devices: frozenset[str], pods: Sequence[ListedPod], holder: Key, plans: Plans) -> str | None:
        """Return why a pod that no plan gives these GPUs must not start with them, or `None`."""
        promised = promised_to_others(plans.values(), holder)
        excluded = told_by(self.silicon(), plans.values()).excluded_by(promised)
        return "its GPUs are promised to another pod" if any(device in excluded for device in devices) else None

    def to_be_vacant(self, devices: frozenset[str], others: Iterable[str] | None) -> frozenset[str]:
        """Return all of them."""
        return devices


@dataclass(frozen=True, slots=True)
class Shared:
    """GiB of one GPU."""

    scorer: Callable[[], ScorerPort]
    shareable: Callable[[], Shareable]
    is_shared: bool = True

    def may_ask(self, plan: PodPlan) -> bool:
        """Whether a pod with this plan asks for the resource."""
        return plan.is_share

    def choose(self, ask: Ask, pods: Sequence[ListedPod], who: Identity, plans: Plans) -> Grant | AllocationRefusal:
        """Say which share devices the kubelet should take."""
        return choose_share(ask, pods, who, plans, self.shareable(), self.scorer())

    def accept(
        self, devices: frozenset[str], pods: Sequence[ListedPod], who: Identity, plans: Plans
    ) -> Grant | AllocationRefusal:
        """Judge those that it took."""
        return accept_share(devices, pods, who, plans, self.shareable())

    def robbed(self, devices: frozenset[str], pods: Sequence[ListedPod], holder: Key, plans: Plans) -> str | None:
        """Return why a pod that no plan gives this share must not start with it, or `None`."""
        others = [pod for pod in pods if pod.key != holder]
        books = Books(others, [plan for key, plan in plans.items() if key != holder], self.shareable())
        mine = plans.get(holder)
        reason = books.robbed(devices, mine.sharing_class if mine else "")
        return f"its share of a GPU cannot stay: {reason}" if reason else None

    def to_be_vacant(self, devices: frozenset[str], others: Iterable[str] | None) -> frozenset[str]:
        """Return the GPU, if nobody else holds a part of it: else who computes there may be a neighbour."""
        gpus = frozenset(map(gpu_of, devices))
        has_neighbours = others is None or any(gpu_of(device) in gpus for device in others if device not in devices)
        return frozenset() if has_neighbours else gpus


def _taken(pods: Sequence[ListedPod]) -> frozenset[str]:
    held = listed_gpus(pods)
    return held | {gpu_of(device) for device in held}
