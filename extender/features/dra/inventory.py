"""Which GPUs of a node can be allocated: what the driver publishes, without what is taken, tainted or incomplete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from extender.cluster.objects.devices import Device, ResourceClaim, ResourceSlice


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    """What identifies a device in the whole cluster."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A whole GPU that a driver publishes."""

    id: DeviceId
    uuid: str
    device: Device


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """The GPUs of one node, by UUID."""

    node: str
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    """All whole GPUs that are published by complete pools of the newest generation, whether they are free or not."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """UUID → why this GPU cannot be allocated now. A taint is not among the reasons: requests may tolerate it."""
    trouble: tuple[str, ...] = ()
    """Pools that are not allocated from, each with the reason."""

    def free(self) -> Iterable[Gpu]:
        """Return the GPUs that nothing excludes."""
        raise NotImplementedError


def taken_by(claims: Iterable[ResourceClaim]) -> dict[DeviceId, str]:
    """Return each device that a claim of any class holds, with the claim's namespace and name; admin access takes nothing."""
    raise NotImplementedError


def read_inventory(
    node: str,
    slices: Iterable[ResourceSlice],
    taken: Mapping[DeviceId, str],
    recorded: Mapping[DeviceId, str] | None = None,
) -> NodeInventory:
    """Read what a node has.

    Args:
        node: Its name.
        slices: All slices of the pools that have devices there, of all generations.
        taken: Device → the claim that holds it or is about to.
        recorded: Device → UUID, as our ledger has it of allocations that are not over. A device whose UUID is another one
            now is excluded, and so is the GPU that the ledger names.

    """
    raise NotImplementedError
