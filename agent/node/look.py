"""A look at the kubelet, as the rest of the agent takes it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.gpus.discovery import NodeDiscovery
from agent.node.watch import NodeVersion
from topology.annotations.records import ClaimUser, Holder, Sharer
from topology.node.offers import ResourceOffer
from topology.node.status import DevicePluginStatus


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of the kubelet at one moment: how its device plugin is, and what containers hold."""

    plugin: DevicePluginStatus
    held: Mapping[str, Holder] | None
    """GPU → container that holds it; `None` when the kubelet did not say."""
    withheld: Mapping[str, str] = field(default_factory=dict)
    """GPU that no pod may be planned on for what somebody else's device plugin offers → why."""
    offers: Mapping[str, tuple[ResourceOffer, ...]] | None = None
    """GPU → how that plugin offers it; `None` where nobody knows yet."""
    shared: Mapping[str, tuple[Sharer, ...]] = field(default_factory=dict)
    """GPU → containers that hold parts of it."""
    claimed: tuple[ClaimUser, ...] = ()
    """Containers that have devices by ResourceClaims."""


class KubeletPort(Protocol):
    """The side towards the kubelet, from any thread."""

    @property
    def last_look(self) -> Look:
        """What was seen last."""
        ...

    def look(self) -> Look:
        """Look now, and wait for it, but not for ever."""
        ...

    def about_to_publish(self, look: Look) -> bool:
        """Prepare for what the node is about to be told of a look; returns whether it may be told."""
        ...

    def published(self, look: Look) -> None:
        """Take in that the node says now what was seen at that look."""
        ...

    def offer(self, discovery: NodeDiscovery) -> None:
        """Take these GPUs for the node's."""
        ...

    def leave(self) -> None:
        """Have it said from the next look on that no pod is to be sent here any more, and serve on."""
        ...

    @property
    def is_expected(self) -> bool:
        """Whether a pod is still to come that was sent here."""
        ...

    def heard(self, version: NodeVersion) -> None:
        """Take in what the Node says now."""
        ...
