"""What we read of ResourceClaims, their templates and DeviceClasses; a field that is not known here is an error.

Other objects are read leniently. What a claim requests is not: a field that we skip could say that a device does not suit.
"""

from __future__ import annotations

from typing import Final

import msgspec

from extender.cluster.objects.kinds import Toleration

OUR_CLASS: Final = "gpus.gputopo.dev"
"""For whole GPUs."""
MIG_CLASS: Final = "mig.gputopo.dev"
"""For MIG devices."""
OUR_CLASSES: Final = frozenset({OUR_CLASS, MIG_CLASS})
MAX_DEVICES: Final = 32
"""Of one claim; the API server refuses an allocation with more."""
MATCHES_NOTHING: Final = "false"
"""The selector that keeps kube-scheduler from allocating devices of our class."""


class RefusedField(Exception):
    """A field that speaks against a claim."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")


class CelSelector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An expression over one device."""

    expression: str


class Selector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a device has to be."""

    cel: CelSelector


class DeviceToleration(Toleration, frozen=True, gc=False, forbid_unknown_fields=True, rename="camel"):
    """A device taint that a request puts up with."""

    toleration_seconds: int | None = None


class Exactly(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Devices of one class."""

    device_class_name: str = ""
    selectors: list[Selector] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] | None = None
    capacity: dict[str, object] | None = None


class FirstAvailable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One of the requests of which the first that can be met is."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[Selector] | None = None
    allocation_mode: str = ""
    count: int = 0
    tolerations: list[DeviceToleration] | None = None
    capacity: dict[str, object] | None = None


class RequestSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One request of a claim: either of the two is set."""

    name: str = ""
    exactly: Exactly | None = None
    first_available: list[FirstAvailable] | None = None


class Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What the devices of some requests have in common."""

    requests: list[str] | None = None
    """None: all of the claim."""
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters for a driver; copied and never read."""

    driver: str = ""
    parameters: object = None


class ClaimConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of a claim's devices, or of those of some requests."""

    requests: list[str] | None = None
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`spec.devices` of a claim."""

    requests: list[RequestSpec] | None = None
    constraints: list[Constraint] | None = None
    config: list[ClaimConfiguration] | None = None


class ClassConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of all devices of a class."""

    opaque: OpaqueConfiguration | None = None


class ClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a DeviceClass says."""

    selectors: list[Selector] | None = None
    config: list[ClassConfiguration] | None = None


class ClassMeta(msgspec.Struct, frozen=True):
    """Which DeviceClass of its name it is."""

    uid: str = ""


class DeviceClass(msgspec.Struct, frozen=True):
    """A DeviceClass, which is ours if it has one of our names."""

    spec: ClassSpec = ClassSpec()
    metadata: ClassMeta = ClassMeta()
