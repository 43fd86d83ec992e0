"""The machine that the agent is on, as discoveries are made of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from agent.gpus.discovery import Discovery, discover
from agent.gpus.facts import NvmlPort
from agent.gpus.faults import blackout_status
from agent.gpus.host import Host
from agent.gpus.xids import Xids


@dataclass(frozen=True, slots=True)
class Machine:
    """Who tells of the node's GPUs."""

    read_nvml: NvmlPort
    host: Host
    xids: Xids | None = None
    """Critical errors that were heard of; `None`: nobody listens."""
    ignored: Collection[str] = ()
    """Programs that may compute anywhere."""

    def discover(self, before: Discovery) -> Discovery:
        """Return what the node is now; `before` is what this one will replace; raises `NvmlUnavailable`."""
        return self._marked(discover(self.read_nvml(), self.host, before, self.ignored))

    def blackout(self, before: Discovery, code: str) -> Discovery:
        """Return what the node is while NVML does not work: all of its GPUs are there, and none is fit."""
        return self._marked(Discovery(before.topology, blackout_status(before.status, code)))

    def _marked(self, found: Discovery) -> Discovery:
        return replace(found, status=self.xids.marked(found.status)) if self.xids else found
