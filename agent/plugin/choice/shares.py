"""Choose the share of a GPU that a container gets.

It is one of its planned GPU, else one that is promised to nobody, and all of it is on one GPU.

A share is so many of a GPU's share devices, `UUID::number`, each of which stands for one GiB. Only their number matters.
So a plan names GPU and GiB, and the kubelet gets the lowest numbers that are free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.plugin.choice.choose import (
    AllocationRefusal,
    Ask,
    Basis,
    Grant,
    ScorerPort,
    beyond_plan,
    must_not_adopt,
    promised_to,
)
from agent.plugin.devices.offers import REPLICA, gpu_of
from agent.plugin.devices.share_devices import number_of
from agent.plugin.pods.identify import Identity, Planned
from agent.plugin.pods.listed_pods import Key, ListedPod, PodPlan, gib_by_gpu, listed_gpus, told_by
from topology.node.silicon import NO_SLICES, Silicon

_WHOLE = "another pod has the whole GPU, or is promised it"


@dataclass(frozen=True, slots=True)
class Shareable:
    """What of a node pods may share."""

    gib: Mapping[str, int]
    """GPU → how many share devices it has."""
    max_gpus: int
    """At most so many of these GPUs are shared at one time."""
    silicon: Silicon = NO_SLICES
    """Which devices of the node are of one GPU."""

    def sliced(self, devices: Iterable[str], plans: Iterable[PodPlan]) -> set[str]:
        """Return the GPUs of which some of these devices are slices, or may be; `plans` tell of those that are gone."""
        excluded = told_by(self.silicon, plans).excluded_by(map(gpu_of, devices))
        return {gpu for gpu in self.gib if excluded.across(gpu)}


def choose_share(
    ask: Ask,
    pods: Sequence[ListedPod],
    who: Identity,
    plans: Mapping[Key, PodPlan],
    shareable: Shareable,
    scorer: ScorerPort,
) -> Grant | AllocationRefusal:
    """Return `size` share devices of one GPU out of the available ones, `must_include` among them, or a refusal."""
    held = listed_gpus(pods) - ask.must_include
    free: dict[str, list[str]] = {}
    for device in ask.available - held:
        free.setdefault(gpu_of(device), []).append(device)
    kept = {gpu_of(device) for device in ask.must_include}
    if len(kept) > 1:
        return AllocationRefusal(f"the pod's init container holds parts of {_named(kept)}, and a share is of one GPU")
    # the ledger may not know yet that somebody has one whole, or a slice of it
    within = (kept or {*free}) - held - shareable.sliced(held, plans.values())
    for gpu in _wanted(who, ask.size):
        if gpu in within and len(free.get(gpu, ())) >= ask.size:
            return Grant(_out_of(free[gpu], ask), Basis.PLANNED)
    if refusal := must_not_adopt(who, f"{ask.size} GiB of the GPU promised to the pod cannot be had"):
        return refusal
    books = Books(pods, plans.values(), shareable)
    rooms = {gpu: len(devices) - books.outstanding(gpu) for gpu, devices in free.items() if gpu in within}
    fits = [gpu for gpu in books.open_to(_class_of(who), rooms) if rooms[gpu] >= ask.size]
    shared = sorted((gpu for gpu in fits if gpu in books.shared), key=lambda gpu: (rooms[gpu], gpu))
    chosen = tuple(shared[:1]) or (scorer.best(fits, (), 1) if fits else None)
    if not chosen:
        return AllocationRefusal(f"no GPU has {ask.size} GiB left that are promised to no other pod")
    return Grant(_out_of(free[chosen[0]], ask), beyond_plan(who))


def accept_share(
    devices: frozenset[str],
    pods: Sequence[ListedPod],
    who: Identity,
    plans: Mapping[Key, PodPlan],
    shareable: Shareable,
) -> Grant | AllocationRefusal:
    """Judge the share devices that the kubelet took."""
    if devices & listed_gpus(pods):
        return AllocationRefusal("the kubelet took a part of a GPU that it lists with another container")
    gpus = {gpu_of(device) for device in devices}
    if len(gpus) > 1:
        return AllocationRefusal(f"the kubelet took parts of {_named(gpus)}, and a share is of one GPU")
    if gpus & (listed_gpus(pods) | shareable.sliced(listed_gpus(pods), plans.values())):
        return AllocationRefusal(f"the kubelet took a part of {_named(gpus)}: {_WHOLE}")
    order = tuple(sorted(devices, key=number_of))
    percent = who.plan.compute_percent if isinstance(who, Planned) else None
    if gpus <= {*_wanted(who, len(devices))}:
        return Grant(order, Basis.PLANNED, percent)
    promised = _named(promised_to(who))
    if refusal := must_not_adopt(who, f"the kubelet took a part of {_named(gpus)}, promised is one of {promised}"):
        return refusal
    books = Books(pods, plans.values(), shareable)
    if reason := books.robbed(devices, _class_of(who)):
        return AllocationRefusal(f"the kubelet took a part of {_named(gpus)}: {reason}")
    return Grant(order, beyond_plan(who), percent)


class Books:
    """What of each GPU is held, and what is promised beyond that."""

    def __init__(self, pods: Sequence[ListedPod], plans: Collection[PodPlan], shareable: Shareable) -> None:
        self._shareable = shareable
        self._plans = plans
        self._held: dict[Key, Mapping[str, int]] = {pod.key: gib_by_gpu(_parts(pod)) for pod in pods}
        self._whole = {gpu for gpu in listed_gpus(pods) if REPLICA not in gpu}
        self._whole |= {gpu for plan in plans for gpu in _whole_of(plan)}
        self._whole |= shareable.sliced(self._whole, plans)
        by_plan = {(plan.key, gpu): plan.sharing_class for plan in plans if plan.is_share for gpu in plan.gpus}
        self._classes: dict[str, set[str | None]] = {}
        for (_, gpu), name in by_plan.items():
            self._classes.setdefault(gpu, set()).add(name)
        for plan in plans:
            for gpu in plan.former_gib:
                self._classes.setdefault(gpu, set()).add(None)  # nobody knows of which class the elder pod was
        for key, held in self._held.items():
            for gpu in held:
                self._classes.setdefault(gpu, set()).add(by_plan.get((key, gpu), ""))

    @property
    def shared(self) -> Collection[str]:
        """The GPUs of which anybody holds a part, or is promised one."""
        return self._classes.keys()

    def outstanding(self, gpu: str) -> int:
        """Return how many GiB are promised to pods that do not hold them yet."""
        nothing: Mapping[str, int] = {}
        promised = ((plan.gib_on(gpu) + plan.former_gib.get(gpu, 0), plan.key) for plan in self._plans)
        return sum(max(0, gib - self._held.get(key, nothing).get(gpu, 0)) for gib, key in promised if gib)

    def open_to(self, sharing_class: str, gpus: Iterable[str]) -> list[str]:
        """Return the GPUs of which a pod of this class may have a part, by UUID."""
        return [gpu for gpu in sorted(gpus) if not self._why_closed(gpu, sharing_class)]

    def robbed(self, devices: frozenset[str], sharing_class: str) -> str | None:
        """Return whom it would rob if a pod got these devices of one GPU beside all that is held, or `None`."""
        gpu = gpu_of(next(iter(devices)))
        if reason := self._why_closed(gpu, sharing_class):
            return reason
        held = sum(by_gpu.get(gpu, 0) for by_gpu in self._held.values())
        left = self._shareable.gib.get(gpu, 0) - held - len(devices)
        return "it is promised to other pods" if left < self.outstanding(gpu) else None

    def _why_closed(self, gpu: str, sharing_class: str) -> str | None:
        if gpu in self._whole:
            return _WHOLE
        if not self._classes.get(gpu, set()) <= {sharing_class}:
            return "it is shared by pods of another class"
        if gpu not in self.shared and len(self.shared) >= self._shareable.max_gpus:
            return "no more GPUs of the node may be shared"
        return None


def _wanted(who: Identity, size: int) -> list[str]:
    """List the GPUs on which the plan has room for a container's share."""
    if not isinstance(who, Planned):
        return []
    if who.container:
        return sorted(who.plan.containers[who.container])
    return [gpu for gpu in sorted(who.plan.gpus) if who.plan.gib_on(gpu) >= size]


def _out_of(free: Iterable[str], ask: Ask) -> tuple[str, ...]:
    rest = sorted(set(free) - ask.must_include, key=number_of)
    return (*sorted(ask.must_include, key=number_of), *rest)[: ask.size]


def _class_of(who: Identity) -> str:
    """Return the class; a pod that nobody planned, and of which nobody can ask, is of none."""
    return who.plan.sharing_class if isinstance(who, Planned) else ""


def _parts(pod: ListedPod) -> list[str]:
    return [device for device in pod.gpus if REPLICA in device]


def _whole_of(plan: PodPlan) -> frozenset[str]:
    return (frozenset() if plan.is_share else plan.gpus) | (plan.former - plan.former_gib.keys())


def _named(gpus: Iterable[str]) -> str:
    return ", ".join(sorted(gpus))
