"""What a node's device plugin offers to pods, GPU by GPU, as the IDs of its devices tell, and what none may be planned on.

NVIDIA's plugin calls a whole GPU by its UUID, a replica `UUID::number`, and a MIG device `MIG-…`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from topology.node.offers import OfferForm, ResourceOffer
from topology.node.silicon import SLICE_PREFIX

REPLICA = "::"
"""Between a GPU's UUID and the number of its replica, where NVIDIA's plugin shares GPUs."""
SHARED = "shared by the device plugin"
SLICED = "offered as MIG devices only by the device plugin"
NOT_OFFERED = "not offered by the device plugin"
MAY_GIVE_MIG = "the device plugin may give out another GPU instead, which has MIG on"
MAY_GIVE_SHARED = "the device plugin may give out another GPU instead, of which containers hold parts"

Offers = Mapping[str, tuple[ResourceOffer, ...]]
"""GPU → how it is offered. One that is not here has MIG on, and nothing of it is offered."""
Sliced = Mapping[str, frozenset[str]]
"""GPU with MIG on → its slices."""


def gpu_of(device: str) -> str:
    """Return the GPU that a device of our resource is, or is a replica of.

    >>> gpu_of("GPU-a::3"), gpu_of("GPU-a")
    ('GPU-a', 'GPU-a')
    """
    return device.partition(REPLICA)[0]


def offers_of(devices: Mapping[str, Collection[str]], whole: Collection[str], sliced: Sliced) -> Offers:
    """Return how each GPU of a node is offered.

    Args:
        devices: Resource → the devices that the kubelet lists.
        whole: The node's GPUs.
        sliced: Those with MIG on, beside them.

    """
    parents = {device: gpu for gpu, slices in sliced.items() for device in slices}
    counts: Counter[tuple[str, str, OfferForm]] = Counter()
    for resource in sorted(devices):
        named = ((gpu_of(device), device) for device in devices[resource])
        counts.update((parents.get(of, of), resource, _form_of(device)) for of, device in named)
    by_gpu: dict[str, list[ResourceOffer]] = {gpu: [] for gpu in whole}
    for (gpu, resource, form), parts in counts.items():
        if gpu in by_gpu or gpu in sliced:
            by_gpu.setdefault(gpu, []).append(ResourceOffer(resource, form, parts))
    return {gpu: tuple(offers) for gpu, offers in by_gpu.items()}


def withheld(
    resource: str,
    devices: Mapping[str, Collection[str]],
    offers: Offers,
    whole: Collection[str],
    in_parts: Collection[str],
) -> Mapping[str, str]:
    """Return which of a node's GPUs no pod may be planned on, and why.

    Those are GPUs that the plugin does not offer whole. If the plugin offers a GPU whole that cannot be used alone, or
    not at all, all GPUs are withheld. The plugin chooses, and does not know.

    Args:
        resource: Pods ask for whole GPUs by this name.
        devices: Resource → the devices that the kubelet lists.
        offers: What they come to.
        whole: The node's GPUs, without those with MIG on.
        in_parts: GPUs of which containers hold parts.

    """
    had = {
        gpu
        for gpu, made in offers.items()
        if any(offer.resource == resource and offer.form is OfferForm.WHOLE for offer in made)
    }
    has_slices = any(device.startswith(SLICE_PREFIX) for device in devices.get(resource, ()))
    reasons = {gpu: _why(offers[gpu], has_slices=has_slices) for gpu in whole if gpu not in had}
    trap = MAY_GIVE_MIG if had.difference(whole) else MAY_GIVE_SHARED if had.intersection(in_parts) else None
    return reasons | {gpu: trap for gpu in whole if trap and gpu in had}


def _form_of(device: str) -> OfferForm:
    return (
        OfferForm.SHARED
        if REPLICA in device
        else OfferForm.SLICED
        if device.startswith(SLICE_PREFIX)
        else OfferForm.WHOLE
    )


def _why(made: tuple[ResourceOffer, ...], *, has_slices: bool) -> str:
    if any(offer.form is OfferForm.SHARED for offer in made):
        return SHARED
    if made:
        return f"offered as {made[0].resource} only by the device plugin"
    return SLICED if has_slices else NOT_OFFERED
