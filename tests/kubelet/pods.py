"""Pods as the kubelet double knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from agent.kubelet.api.deviceplugin_pb2 import ContainerAllocateResponse
from agent.plugin.pods.listed_pods import Key
from topology.annotations.keys import SHARE_RESOURCE


class Kind(StrEnum):
    """When a container runs."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Phase(StrEnum):
    """How far a pod has come."""

    PENDING = "Pending"
    RUNNING = "Running"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"


@dataclass(frozen=True)
class Container:
    """What a container asks for."""

    name: str
    gpus: int
    kind: Kind = Kind.APP
    gib: int = 0
    """Of one GPU, where it asks for a share."""

    def count(self, resource: str) -> int:
        """Return how many devices of a resource it asks for."""
        return self.gib if resource == SHARE_RESOURCE else self.gpus


@dataclass
class Pod:
    """One pod and what became of it."""

    name: str
    containers: tuple[Container, ...]
    uid: str = ""
    namespace: str = "default"
    created: int = 0
    phase: Phase = Phase.PENDING
    reason: str = ""
    started: dict[str, ContainerAllocateResponse] = field(default_factory=dict)
    """Container → what the runtime was told at its last start."""
    starts: int = 0

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def active(self) -> bool:
        """Whether the kubelet counts it as one that may use its devices."""
        return self.phase in (Phase.PENDING, Phase.RUNNING)

    def ordered(self) -> list[Container]:
        """Return the containers as they are admitted: init containers and sidecars first, in the order of the spec."""
        return sorted(self.containers, key=lambda container: container.kind is Kind.APP)

    def env(self, container: str) -> set[str]:
        """Return the GPUs that a started container was told."""
        return set(filter(None, self.started[container].envs.get("NVIDIA_VISIBLE_DEVICES", "").split(",")))


def share_pod(name: str, *gib: int, created: int = 0, uid: str = "") -> Pod:
    """Return a pod with one app container, `c0` and so on, for each share."""
    containers = tuple(Container(f"c{place}", 0, gib=each) for place, each in enumerate(gib))
    return Pod(name, containers, uid or f"uid-{name}", created=created)


def gpu_pod(name: str, *gpus: int, created: int = 0, uid: str = "") -> Pod:
    """Return a pod with one app container, `c0` and so on, for each number."""
    containers = tuple(Container(f"c{place}", count) for place, count in enumerate(gpus))
    return Pod(name, containers, uid or f"uid-{name}", created=created)
