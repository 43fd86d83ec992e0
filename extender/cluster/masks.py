"""GPUs and MIG slices of a node as masks: bit i stands for the i-th device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from extender.cluster.objects.payloads import NodePayloads
from extender.cluster.objects.topologies import NodeGpus
from topology.annotations.records import Claim
from topology.node.silicon import Silicon


def mask_of(devices: tuple[str, ...], uuids: Iterable[str]) -> int:
    """Return the mask of `uuids` over `devices`, with one bit more when there are any that are not known.

    >>> mask_of(("a", "b", "c"), ["c", "a"]), mask_of(("a", "b", "c"), ["x"])
    (5, 8)
    """
    masked = frozenset(uuids)
    mask = sum(1 << position for position, uuid in enumerate(devices) if uuid in masked)
    return mask | 1 << len(devices) if masked.difference(devices) else mask


def silicon_of(gpus: NodeGpus | None, claims: Iterable[Claim]) -> Silicon:
    """Return which of a node's devices are the same silicon; of slices that are gone the claims tell the GPU."""
    silicon = Silicon(gpus.slices, overlaps=gpus.overlaps) if gpus else Silicon()
    return silicon.remembering({claim.gpu: claim.parent for claim in claims if claim.parent})


def excluded_devices(devices: tuple[str, ...], silicon: Silicon, held: Iterable[str]) -> int:
    """Return the mask of what of `devices` nobody else may have while somebody has the devices in `held`."""
    held = frozenset(held)
    mask = sum(1 << position for position, uuid in enumerate(devices) if uuid in held)
    if not silicon.slices and mask.bit_count() == len(held):
        return mask  # GPUs of a node without slices: each is silicon of its own
    return ExclusionMasks(devices, silicon).excluded(held)


def excluded_across(devices: tuple[str, ...], silicon: Silicon, held: Iterable[str]) -> int:
    """Return the same without what is only excluded by itself."""
    held = frozenset(held)
    if not silicon.slices and held.issubset(devices):
        return 0
    return ExclusionMasks(devices, silicon).across(held)


class ExclusionMasks:
    """What `Silicon.excluded_by` says of a node's devices, for callers with many holders: linear in devices and holders."""

    def __init__(self, devices: tuple[str, ...], silicon: Silicon) -> None:
        self._silicon = silicon
        self._all = (1 << len(devices)) - 1
        self._bits: dict[str, int] = {}
        self._of_gpu: dict[str | None, int] = {}
        """The GPU and its slices."""
        for position, uuid in enumerate(devices):
            self._bits[uuid] = self._bits.get(uuid, 0) | 1 << position
            gpu = silicon.place(uuid)[1]
            self._of_gpu[gpu] = self._of_gpu.get(gpu, 0) | 1 << position

    def excluded(self, held: Iterable[str]) -> int:
        """Return what nobody else may have while somebody has these devices."""
        return reduce(or_, (self._bits.get(device, 0) | self._by(device) for device in held), 0)

    def across(self, held: Iterable[str]) -> int:
        """Return the same without what is only excluded by itself."""
        return reduce(or_, map(self._by, held), 0)

    def _by(self, device: str) -> int:
        """Return what a device excludes beside itself."""
        silicon, own = self._silicon, self._bits.get(device, 0)
        gpu = silicon.place(device)[1]
        if gpu is None:
            return self._all & ~own
        if device not in silicon.slices:
            return (self._of_gpu.get(gpu, 0) | self._of_gpu.get(None, 0)) & ~own
        others = silicon.overlaps.get(device, ())
        return reduce(or_, (self._bits.get(other, 0) for other in others), self._bits.get(gpu, 0))


def chosen_blindly(gpus: NodeGpus, across: int) -> int:
    """Return all devices of the kinds of which NVIDIA's plugin may choose one in `across`: it knows nothing of silicon."""
    node = gpus.topology_class.node
    whole = (1 << len(node)) - 1
    slices = [(1 << position, mig_slice.profile) for position, mig_slice in enumerate(node.slices, len(node))]
    profiles = {profile for bit, profile in slices if across & bit}
    return (whole if across & whole else 0) | sum(bit for bit, profile in slices if profile in profiles)


def doubtful_devices(payloads: NodePayloads) -> int:
    """Return the GPUs that pods get last among equals, and their slices."""
    gpus, status = payloads.topology.value, payloads.status.value
    if gpus is None or status is None:
        return 0
    return with_slices(gpus, mask_of(gpus.uuids, status.doubtful.intersection(gpus.uuids)))


def unfit_devices(payloads: NodePayloads) -> int:
    """Return the GPUs that are sick or cut into slices, and the slices that are sick or of sick GPUs."""
    gpus, status = payloads.topology.value, payloads.status.value
    if gpus is None:
        return 0
    mask = sum(1 << position for position, gpu in enumerate(gpus.topology_class.node.gpus) if gpu.mig_enabled)
    if status is None:
        return mask
    cut = frozenset(gpu.uuid for gpu in status.gpus if gpu.mig_enabled)
    unfit = sum(1 << position for position, uuid in enumerate(gpus.devices) if uuid in status.unhealthy)
    return (
        mask | with_slices(gpus, unfit) | sum(1 << position for position, uuid in enumerate(gpus.uuids) if uuid in cut)
    )


def with_slices(gpus: NodeGpus, mask: int) -> int:
    """Return these GPUs and slices, and all slices of these GPUs."""
    node = gpus.topology_class.node
    theirs = (1 << i for i, mig_slice in enumerate(node.slices, len(node)) if mask >> node.positions[mig_slice.gpu] & 1)
    return mask | sum(theirs)
