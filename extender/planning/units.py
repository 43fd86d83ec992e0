"""What a plan is made of: pods that wait, units of them that start together, and where each is to go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from extender.cluster.candidates.holds import Held
from extender.cluster.objects.gpu_pods import priority_of
from extender.cluster.objects.kinds import Pod
from extender.planning.planned_nodes import HostDemand
from topology.placement.verdict import Placement
from topology.request.domains import GroupRequest, Location
from topology.request.gpu_request import GpuRequest


@dataclass(frozen=True)
class PendingPod:
    """A pod that waits, and what it asks for now. Its kind is computed once, however many plans are made while it waits."""

    pod: Pod
    request: GpuRequest
    avoided: Collection[str] = ()
    """Nodes that step back from it."""
    fallbacks: tuple[GpuRequest, ...] = ()
    """What it accepts instead of `request`, in order."""
    accepted_devices: Hashable = ()
    """Pods with equal values accept the same devices by their ResourceClaims."""

    @cached_property
    def kind(self) -> Hashable:
        """What is equal of pods that fit on the same nodes."""
        # The selectors of each namespace are evaluated for so long only.
        devices = self.accepted_devices and (self.pod.metadata.namespace, self.accepted_devices)
        return self.request, self.node_kind, HostDemand.of(self.pod), self.fallbacks, devices

    @property
    def requests(self) -> tuple[GpuRequest, ...]:
        """All that it accepts, in order."""
        return self.request, *self.fallbacks

    @property
    def node_kind(self) -> Hashable:
        """What is equal of pods that labels and taints let go to the same nodes."""
        spec = self.pod.spec
        return tuple(sorted((spec.node_selector or {}).items())), tuple(spec.tolerations or ())

    @property
    def gpus(self) -> int:
        """GPUs, or shares of them."""
        return self.request.gpus or len(self.request.memory_gib)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a pod is to go."""

    pod: Pod
    request: GpuRequest
    node: str
    placement: Placement

    @property
    def gpus(self) -> int:
        """The GPUs of which it would get anything there, as a mask over positions."""
        return sum(1 << position for position in self.placement.gpus)

    @property
    def held(self) -> Held:
        """What it would get there."""
        return Held.of(self.placement, self.request)


@dataclass(frozen=True)
class Unit:
    """Pods that start together or not at all: a gang, or one pod."""

    key: str
    """Identifies it, also in the next plan: the pod's UID, or the gang's name."""
    namespace: str
    priority: int
    since: float
    """When it began to wait, in any seconds that are the same for all."""
    members: tuple[PendingPod, ...]
    """Those that wait, at least one."""
    least: int = 0
    """Members that have to be placed; 0: all. An elastic gang may start with fewer."""
    group: GroupRequest | None = None
    """What its members ask of each other's places."""
    placed: tuple[Location, ...] = ()
    """Where members stand that have been placed before."""
    expected_seconds: float | None = None
    """How long it will run; `None`: nobody knows."""
    is_begun: bool = False
    """Whether members have been placed, fewer than the gang needs: they hold GPUs and wait for these."""

    @classmethod
    def alone(cls, wanted: PendingPod, *, since: float = 0.0, expected_seconds: float | None = None) -> Self:
        """Return a pod that starts by itself."""
        metadata = wanted.pod.metadata
        return cls(
            metadata.uid,
            metadata.namespace,
            priority_of(wanted.pod),
            since,
            (wanted,),
            expected_seconds=expected_seconds,
        )

    @property
    def gpus(self) -> int:
        """All that its members ask for."""
        return sum(member.gpus for member in self.members)

    def ways(self) -> Iterator[Unit]:
        """Yield the unit once for each request that its members accept, in their order: all have the same number of theirs.

        A member that accepts fewer has its last one.
        """
        yield self
        for number in range(1, max(len(member.requests) for member in self.members)):
            members = (replace(member, request=member.requests[: number + 1][-1]) for member in self.members)
            yield replace(self, members=tuple(members))

    @property
    def kind_of_way(self) -> Hashable | None:
        """The kind of this unit if its members had no fallbacks."""
        if not any(member.fallbacks for member in self.members):
            return self.kind
        return replace(self, members=tuple(replace(member, fallbacks=()) for member in self.members)).kind

    @property
    def is_gang(self) -> bool:
        """Whether it is more than one pod, or the rest of more."""
        return len(self.members) > 1 or bool(self.placed)

    @property
    def needed(self) -> int:
        """How many members have to be placed."""
        return self.least or len(self.members)

    @cached_property
    def kind(self) -> Hashable | None:
        """What is equal of units for which there is room or not alike; `None`: none is like this one."""
        if any(member.avoided for member in self.members):
            return None
        if len(self.members) == 1 and self.group is None:
            return self.members[0].kind
        group = (self.group.level, self.group.required) if self.group else None
        return frozenset(Counter(member.kind for member in self.members).items()), self.needed, group, self.placed
