"""The machine that the agent is on, as discoveries are made of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from agent.gpus.discovery import NodeDiscovery, discover
from agent.gpus.facts import NvmlFacts, NvmlPort
from agent.gpus.faults import blackout_status, closed_status
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.host import Host
from agent.gpus.sharing_rule import SharingRule
from topology.node.status import NodeGpuStatus


@dataclass(frozen=True, slots=True)
class GpuMachine:
    """Who tells of the node's GPUs."""

    read_nvml: NvmlPort
    host: Host
    health: GpuHealth | None = None
    """What is known of the GPUs beside what NVML says now; `None`: nothing."""
    ignored: Collection[str] = ()
    """Programs that may compute anywhere."""
    sharing: SharingRule | None = None
    """Which GPUs may be shared; `None`: none."""
    foreign: Callable[[NodeGpuStatus, NvmlFacts], NodeGpuStatus] | None = None
    """Marks memory that no share explains; `None`: nothing is shared."""

    @property
    def in_storm(self) -> bool:
        """Whether it is better to look less often."""
        return self.health is not None and self.health.in_storm

    def discover(self, before: NodeDiscovery) -> NodeDiscovery:
        """Return what the node is now; `before` is what this one will replace; raises `NvmlUnavailable`."""
        facts = self.read_nvml()
        usable = self.health.usable(facts) if self.health else facts
        discovery = self._marked(discover(usable, self.host, before, self.ignored), facts)
        return self.sharing.applied(discovery, facts, before) if self.sharing else discovery

    def blackout(self, before: NodeDiscovery, code: str) -> NodeDiscovery:
        """Return what the node is while NVML does not work: all of its GPUs are there, and none is fit."""
        return self._marked(NodeDiscovery(before.topology, blackout_status(before.status, code), minors=before.minors))

    def paused(self, before: NodeDiscovery, reason: str) -> NodeDiscovery:
        """Return what the node is while NVML is left alone: its GPUs are as they were, and take no pods."""
        return self._marked(NodeDiscovery(before.topology, closed_status(before.status, reason), minors=before.minors))

    def _marked(self, discovery: NodeDiscovery, facts: NvmlFacts | None = None) -> NodeDiscovery:
        status = self.health.marked(discovery.status, facts) if self.health else discovery.status
        return replace(discovery, status=self.foreign(status, facts) if self.foreign and facts else status)
