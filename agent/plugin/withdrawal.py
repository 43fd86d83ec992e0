"""Which devices are withdrawn from the kubelet just now: a GPU is whole or shared, and not offered in the other form then.

A free GPU is offered in both forms, so that a claim of either form can be admitted at once. Where the kubelet is short
of healthy devices it rejects a pod for good, and asks nobody. So a claim withdraws nothing. Only what containers hold
does, and only once the node says so (`PublishedDevices`). It is given back before the node says that nobody holds it.
The extender gives no GPU in one form while the node says that it is held in the other. So no pod ever comes for devices
that are withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.plugin.devices.offers import REPLICA, gpu_of
from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.listed_pods import ListedPod, PodPlan, listed_gpus


@dataclass(frozen=True, slots=True)
class PublishedDevices:
    """What the node certainly says by now of how its GPUs are held, whatever write is under way."""

    whole: frozenset[str] = frozenset()
    """GPUs that it says are held whole."""
    shared: frozenset[str] = frozenset()
    """GPUs of which it says that parts are held."""
    max_gpus: int | None = None
    """How many it says may be shared; `None`: it has said nothing yet."""

    def both(self, other: PublishedDevices) -> PublishedDevices:
        """Return what is said in either case."""
        limits = [published.max_gpus for published in (self, other) if published.max_gpus is not None]
        most = max(limits) if len(limits) == 2 else None
        return PublishedDevices(self.whole & other.whole, self.shared & other.shared, most)


def withdrawn(
    shareable: Mapping[str, int], pods: Sequence[ListedPod], plans: Iterable[PodPlan], published: PublishedDevices
) -> frozenset[str]:
    """Return the devices that are not to be offered, none of which anybody holds.

    Args:
        shareable: GPU → GiB of it that may be shared.
        pods: As the kubelet lists them.
        plans: Of the node's pods; what is promised as a share stays on offer as one.
        published: What the node says.

    """
    held = listed_gpus(pods)
    parts = {gpu_of(device) for device in held if REPLICA in device}
    promised = {gpu for plan in plans if plan.is_share for gpu in plan.gpus} - held
    return frozenset(_withdrawn(shareable, held, parts, promised, published)) - held


def _withdrawn(
    shareable: Mapping[str, int], held: frozenset[str], parts: set[str], promised: set[str], published: PublishedDevices
) -> Iterator[str]:
    shared = parts & published.shared
    is_full = published.max_gpus is not None and len(shared) >= published.max_gpus
    yield from shared
    for gpu, gib in shareable.items():
        is_whole = gpu in held and gpu in published.whole
        if is_whole or (is_full and gpu not in parts | promised):
            yield from share_devices(gpu, gib)
