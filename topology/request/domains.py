"""What nodes have in common beyond their own wires, NVLink domains, racks and blocks, and what a group asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Level(StrEnum):
    """The kinds of domains, the nearest first."""

    NVLINK_DOMAIN = "nvlink-domain"
    RACK = "rack"
    BLOCK = "block"


DomainLabels = Mapping[Level, Sequence[str]]

DOMAIN_LABELS: Final[DomainLabels] = MappingProxyType(
    {
        Level.NVLINK_DOMAIN: ("nvidia.com/gpu.clique", "accelerator.topograph.run/domain"),
        Level.RACK: (
            "topology.kubernetes.io/rack",
            "fabric.topograph.run/tier-0",
            "cloud.google.com/gce-topology-subblock",
            "topology.k8s.aws/network-node-layer-3",
            "oci.oraclecloud.com/host.rack_id",
        ),
        Level.BLOCK: (
            "topology.kubernetes.io/block",
            "fabric.topograph.run/tier-1",
            "cloud.google.com/gce-topology-block",
            "topology.k8s.aws/network-node-layer-2",
            "oci.oraclecloud.com/host.network_block_id",
        ),
    }
)
"""Of GPU Feature Discovery, Topograph, Google, Amazon and Oracle; a level's first label that a node has counts. Names of one
level have to be unique in the cluster, as they are with all of these."""


class Location(NamedTuple):
    """Where a node stands: a name for each level, `None` where nobody knows."""

    nvlink_domain: str | None = None
    rack: str | None = None
    block: str | None = None

    def domain(self, level: Level) -> Domain:
        """Return the domain of that level.

        >>> Location(rack="r7").domain(Level.RACK)
        (<Level.RACK: 'rack'>, 'r7')
        """
        return level, self[_DEPTH[level]]

    def at(self, level: Level, name: str) -> Location:
        """Return the same with another name for one level.

        >>> Location(block="b1").at(Level.RACK, "r7")
        Location(nvlink_domain=None, rack='r7', block='b1')
        """
        return Location(*(name if depth == _DEPTH[level] else has for depth, has in enumerate(self)))


Domain = tuple[Level, str | None]
"""A level and a name; nodes whose domain nobody knows have `None` in common, which is not being near each other."""

_DEPTH = {level: depth for depth, level in enumerate(Level)}


OURS: Final = "gputopo"
"""Whose word it is where a pod names its group by our annotation."""


class GroupSource(StrEnum):
    """Other programs whose groups we know, in the order in which they count."""

    KUBE_SCHEDULER = "kube-scheduler"
    VOLCANO = "volcano"
    KAI = "kai"
    COSCHEDULING = "coscheduling"
    GROVE = "grove"
    LEADER_WORKER_SET = "leaderworkerset"
    KUEUE = "kueue"
    JOB_SET = "jobset"
    KUBEFLOW = "kubeflow"
    RAY = "ray"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class GroupName:
    """Which group of its namespace a pod is in, and who says so."""

    source: str
    name: str
    run: str = ""
    """What tells it from a group of the same name that was started another time; empty where the name does."""
    size: int | None = None
    """Pods altogether, as far as the pod says so."""


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """What a pod says of its group."""

    name: str
    size: int | None = None
    """Pods altogether; `None`: as many as there are."""
    level: Level = Level.NVLINK_DOMAIN
    """The nearest that matters, or that is required."""
    required: bool = False
    """Whether the whole group has to be in one domain of that level."""
    source: str = OURS
    """By whose words the pod is in it."""
    run: str = ""
    """Which of several groups of that name."""
    is_gang: bool = False
    """Whether its pods start together or not at all."""
    least: int | None = None
    """How many of them are enough for a gang; `None`: all."""

    @property
    def levels(self) -> list[Level]:
        """The levels of which as few domains as can be are wanted, the nearest first.

        Inside a domain that is required every level matters.
        """
        return list(Level) if self.required else list(Level)[_DEPTH[self.level] :]

    def relaxed(self) -> GroupRequest:
        """Return the request with what it requires as a preference."""
        return replace(self, required=False)
