"""The parts of DRA's objects that we read: which devices a ResourceClaim holds, and which GPUs a ResourceSlice says these are.

Both are of `resource.k8s.io/v1`. Everything else in them is skipped unparsed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from extender.cluster.objects.kinds import ObjectMeta

DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's driver for GPUs and their MIG devices; others of its drivers hand out no GPUs."""
CLAIMS_PATH: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
SLICES_SELECTOR: Final = f"spec.driver={DRIVER}"
_KEEPS_PODS_AWAY: Final = ("NoSchedule", "NoExecute")


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """One device that was allocated; a device that is shared is in the results of several claims."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """It only looks, and takes nothing."""


class Results(msgspec.Struct, frozen=True):
    """All devices of an allocation."""

    results: list[Result] | None = None


class FieldRequirement(msgspec.Struct, frozen=True):
    """A term about a node's name."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """One of the terms of which one has to match."""

    match_fields: list[FieldRequirement] | None = None


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Where an allocation can be used."""

    node_selector_terms: list[NodeTerm] | None = None


class Allocation(msgspec.Struct, frozen=True, rename="camel"):
    """What a claim was given."""

    devices: Results = Results()
    node_selector: NodeSelector | None = None


class ClaimStatus(msgspec.Struct, frozen=True):
    """What has become of a claim."""

    allocation: Allocation | None = None


class ResourceClaim(msgspec.Struct, frozen=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    status: ClaimStatus = ClaimStatus()

    @property
    def name(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def held(self) -> tuple[Result, ...]:
        """The devices of NVIDIA's driver that it holds, by whomever it is reserved."""
        allocation = self.status.allocation
        results = allocation.devices.results if allocation else None
        return tuple(result for result in results or () if result.driver == DRIVER and not result.admin_access)

    @property
    def node(self) -> str | None:
        """The one node where the devices are, as kube-scheduler writes it for devices of a node."""
        selector = self.status.allocation.node_selector if self.status.allocation else None
        terms = (selector.node_selector_terms if selector else None) or ()
        fields = [field for term in terms for field in term.match_fields or ()]
        names = {name for field in fields if field.key == "metadata.name" for name in field.values or ()}
        return names.pop() if len(names) == 1 and len(terms) == 1 else None


class Text(msgspec.Struct, frozen=True):
    """An attribute of which the text is read."""

    string: str | None = None


class Attributes(msgspec.Struct, frozen=True):
    """Those of a device that name a GPU."""

    uuid: Text | None = None
    parent_uuid: Text | None = msgspec.field(name="parentUUID", default=None)
    """Of the GPU that a MIG device is a slice of."""


class DeviceTaint(msgspec.Struct, frozen=True):
    """What keeps pods off a device that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Device(msgspec.Struct, frozen=True):
    """A GPU, or a slice of one."""

    name: str = ""
    attributes: Attributes | None = None
    taints: list[DeviceTaint] | None = None

    @property
    def gpu(self) -> str | None:
        """UUID of the GPU; `None` where nobody says."""
        uuid = self.attributes and (self.attributes.parent_uuid or self.attributes.uuid)
        return uuid.string if uuid else None

    @property
    def taint(self) -> str | None:
        """What keeps pods off the whole GPU."""
        if self.attributes is None or self.attributes.parent_uuid:
            return None
        return next((str(taint) for taint in self.taints or () if taint.effect in _KEEPS_PODS_AWAY), None)


class Pool(msgspec.Struct, frozen=True):
    """All devices that are published together; only slices of the newest generation count."""

    name: str = ""
    generation: int = 0


class SliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a driver publishes."""

    driver: str = ""
    node_name: str | None = None
    pool: Pool = Pool()
    devices: list[Device] | None = None


class ResourceSlice(msgspec.Struct, frozen=True):
    """Some of a pool's devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()
