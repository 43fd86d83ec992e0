"""The parts of DRA's objects that we read: what a ResourceClaim requests and holds, and what a ResourceSlice says of devices.

Both are of `resource.k8s.io/v1`. Everything else in them is skipped unparsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from extender.cluster.objects.kinds import KEEPS_AWAY, ObjectMeta, Taint
from topology.annotations import keys
from topology.node.offers import DRA_DRIVER

DRIVER: Final = DRA_DRIVER
CLAIMS_PATH: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES_PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
SLICES_SELECTOR: Final = f"spec.driver={DRIVER}"


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """One device that was allocated; a device that is shared is in the results of several claims."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    """The claim does not hold the device: others may hold it at the same time."""


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


class Consumer(msgspec.Struct, frozen=True):
    """A pod, as a rule, that may use a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What has become of a claim."""

    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None


class ClaimMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """`metadata` of a claim."""

    finalizers: list[str] | None = None


class ClaimSpec(msgspec.Struct, frozen=True):
    """What a claim requests."""

    devices: dict[str, object] | None = None
    """As it is written: the feature that allocates claims reads it, and refuses what it does not know."""
    json_bytes: int | None = None
    """Of a claim that is too large to be kept: it has lost all of its devices but the class."""


class ResourceClaim(msgspec.Struct, frozen=True):
    """A claim for devices."""

    metadata: ClaimMeta = ClaimMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def name(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_standalone(self) -> bool:
        """Whether it was made for no pod: any number of them may name it."""
        owner = self.metadata.controller
        return owner is None or owner.kind != "Pod"

    @property
    def pod(self) -> str:
        """UID of the pod for which it was made from a template, or else of the one that our mark says; empty: for none."""
        owner = self.metadata.controller
        if owner is not None and owner.kind == "Pod":
            return owner.uid
        return (self.metadata.annotations or {}).get(keys.CLAIM_POD, "")

    @property
    def held(self) -> tuple[Result, ...]:
        """The devices of NVIDIA's driver that it holds, by whomever it is reserved."""
        return tuple(result for result in self._results if not result.admin_access)

    @property
    def by_admin_access(self) -> tuple[Result, ...]:
        """The devices of that driver that its pods have, and that it does not hold."""
        return tuple(result for result in self._results if result.admin_access)

    @property
    def _results(self) -> Iterator[Result]:
        allocation = self.status.allocation
        results = allocation.devices.results if allocation else None
        return (result for result in results or () if result.driver == DRIVER)

    @property
    def node(self) -> str | None:
        """The one node where the devices are, as kube-scheduler writes it for devices of a node."""
        selector = self.status.allocation.node_selector if self.status.allocation else None
        terms = (selector.node_selector_terms if selector else None) or ()
        fields = [field for term in terms for field in term.match_fields or ()]
        names = {name for field in fields if field.key == "metadata.name" for name in field.values or ()}
        return names.pop() if len(names) == 1 and len(terms) == 1 else None


class Attribute(msgspec.Struct, frozen=True, rename={"integer": "int", "boolean": "bool"}):
    """One of the values is set; lists are of Kubernetes 1.36 and later."""

    string: str | None = None
    integer: int | None = None
    boolean: bool | None = None
    version: str | None = None
    strings: list[str] | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    versions: list[str] | None = None


class Capacity(msgspec.Struct, frozen=True):
    """How much of something a device has, or what of a counter it takes."""

    value: str | int = "0"


class CounterSet(msgspec.Struct, frozen=True):
    """What devices of a pool share."""

    name: str = ""
    counters: dict[str, Capacity] | None = None


class CounterConsumption(msgspec.Struct, frozen=True, rename="camel"):
    """What a device takes of a counter set."""

    counter_set: str = ""
    counters: dict[str, Capacity] | None = None
    compatibility_groups: list[str] | None = None
    """Kubernetes 1.37: devices of other groups cannot be allocated at the same time."""


class DeviceTaint(Taint, frozen=True, gc=False):
    """What keeps pods off a device that do not tolerate it."""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def keeps_pods_away(self) -> bool:
        """Whether pods need a toleration."""
        return self.effect in KEEPS_AWAY


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU, or a slice of one."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    consumes_counters: list[CounterConsumption] | None = None
    taints: list[DeviceTaint] | None = None
    allow_multiple_allocations: bool | None = None
    """Several claims may share it."""
    binding_conditions: list[str] | None = None
    """It is ready only some time after its allocation."""

    def text(self, attribute: str) -> str | None:
        """Return the text of an attribute of the driver's own domain."""
        named = (self.attributes or {}).get(attribute)
        return named.string if named else None

    @property
    def gpu(self) -> str | None:
        """UUID of the GPU, of a slice that of the GPU which it is part of; `None` where nobody says."""
        return self.text("parentUUID") or self.text("uuid")

    @property
    def is_whole(self) -> bool:
        """Whether it is a GPU, and no slice of one."""
        return self.text("uuid") is not None and self.text("parentUUID") is None

    @property
    def taint(self) -> str | None:
        """What keeps pods off the whole GPU."""
        if self.attributes is None or "parentUUID" in self.attributes:
            return None
        return next((str(taint) for taint in self.taints or () if taint.keeps_pods_away), None)


class Pool(msgspec.Struct, frozen=True, rename="camel"):
    """All devices that are published together; only slices of the newest generation count."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1
    """Slices of the newest generation, once all are there."""


class SliceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a driver publishes."""

    driver: str = ""
    node_name: str | None = None
    pool: Pool = Pool()
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(msgspec.Struct, frozen=True):
    """Some of a pool's devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()
