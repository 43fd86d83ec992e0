"""What the claims of a pod request of our class, as a request for the planner; or why they cannot be met, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.cluster.objects.devices import ResourceClaim
from extender.cluster.objects.kinds import Pod
from extender.features.dra.claim_spec import DeviceClass, DeviceToleration
from topology.request.gpu_request import PodRequest


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """So many GPUs for one request of one claim."""

    claim: str
    """Namespace and name."""
    claim_uid: str
    name: str
    """As the results of an allocation have it: `gpus`, or `gpus/large` of an alternative."""
    count: int
    selectors: tuple[str, ...] = ()
    """CEL expressions, those of the class first; each device has to match all."""
    tolerations: tuple[DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class DemandOption:
    """One way to meet all claims of a pod. All of its requests accept the same devices."""

    requests: tuple[DeviceRequest, ...]
    match_attributes: tuple[str, ...] = ()
    """Qualified names of attributes of which all devices of the pod have the same value."""

    @property
    def gpus(self) -> int:
        """GPUs of the pod."""
        return sum(request.count for request in self.requests)

    @property
    def selectors(self) -> tuple[str, ...]:
        """Expressions that every device has to match."""
        return self.requests[0].selectors

    @property
    def tolerations(self) -> tuple[DeviceToleration, ...]:
        """Taints that every device may have."""
        return self.requests[0].tolerations


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """What a pod requests of our class."""

    options: tuple[DemandOption, ...]
    """The preferred one first, at most `MAX_OPTIONS`; the next one counts where no node has room for those before."""


@dataclass(frozen=True, slots=True)
class RefusedDemand:
    """A claim that cannot be allocated as it is written."""

    claim: str
    """Namespace and name."""
    field: str
    """Path within the claim, as `spec.devices.requests[0].exactly.allocationMode`."""
    reason: str

    def __str__(self) -> str:
        return f"ResourceClaim {self.claim}: {self.field}: {self.reason}"


def is_ours(claim: ResourceClaim) -> bool:
    """Whether any request of the claim names our class; the claim may still be refused."""
    raise NotImplementedError


def read_demand(claims: Sequence[ResourceClaim], device_class: DeviceClass) -> DeviceDemand | RefusedDemand | None:
    """Read what all claims of one pod request of our class.

    Args:
        claims: All claims of the pod, those of other drivers, too.
        device_class: Ours.

    Returns:
        `None` where no claim is of our class. Claims that have an allocation count like others.

    """
    raise NotImplementedError


def planner_request(pod: Pod, claims: Sequence[ResourceClaim], option: DemandOption) -> PodRequest:
    """Return the request that the planner takes, with annotations of the pod, its claims of our class and their templates.

    The controller copies annotations of templates to their claims. An annotation of the pod counts before a claim's.

    Raises `RequestError`, and the same for claims that contradict each other.
    """
    raise NotImplementedError


def annotations_of(pod: Pod, claims: Sequence[ResourceClaim]) -> Mapping[str, str]:
    """Return our annotations of a pod and of its claims of our class; raises `RequestError` where two claims disagree."""
    raise NotImplementedError
