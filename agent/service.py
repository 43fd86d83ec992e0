"""The loop: discover, compare, write. Everything that it decides with is somewhere else, and injected."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from agent.errors import ApiError, NvmlUnavailable
from agent.gpus.discovery import NOTHING, NodeDiscovery
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.access import CLOSED, PAUSED
from agent.gpus.nvml.time_limit import TIMED_OUT
from agent.metrics import AgentMetrics
from agent.node.condition import ConditionKeeper
from agent.node.kube import NodePort
from agent.node.look import KubeletPort, Look
from agent.node.publish import Patch, Publication
from agent.node.watch import NodeVersion
from topology.annotations import keys

log = structlog.get_logger()

STALE_LIBRARY = "LIB_RM_VERSION_MISMATCH"
"""The driver was updated under us. Only a new process loads the new library."""

_SLOW_TURN_SECONDS = 120.0
"""NVML takes its time on a GPU that is going; a new process is no help before this has passed."""


_STORM_PAUSE_SECONDS = 60.0
"""More between two looks while memory errors come too fast: calls that wait for each other are what hangs the driver."""


class Agent:
    """One node's agent; `clock` is monotonic, in seconds."""

    def __init__(
        self,
        machine: GpuMachine,
        node: NodePort,
        publication: Publication,
        metrics: AgentMetrics,
        clock: Callable[[], float],
        *,
        kubelet: KubeletPort | None = None,
        condition: ConditionKeeper | None = None,
    ) -> None:
        self._machine = machine
        self._node = node
        self._publication = publication
        self._metrics = metrics
        self._clock = clock
        self._kubelet = kubelet
        self._condition = condition
        self._before = NOTHING
        self._discovery: NodeDiscovery | None = None
        self._heard: NodeVersion | None = None
        self._turned_at = clock()
        self._hangs = False
        self._refresh_wanted = False
        self._has_said = False

    @property
    def is_ready(self) -> bool:
        """Whether the node says what this process has found, and not what was said before it began."""
        return self._publication.is_known and self._has_said

    def is_turning(self, interval_seconds: float) -> bool:
        """Whether the loop still turns, and NVML answers, be it with an error: a new process may get an answer."""
        return self._clock() - self._turned_at < 3 * interval_seconds + _SLOW_TURN_SECONDS

    def turn(self) -> None:
        """Discover the node once and write what has to be written; raises `NvmlUnavailable` only for a stale library."""
        self._learn()
        started = self._clock()
        discovery = self._discover()
        if discovery is not None:
            self._before = self._discovery = discovery
            self._metrics.saw(discovery, self._clock() - started)
            if self._kubelet:
                self._kubelet.offer(discovery)
            self.publish()
            if self._condition and self._publication.is_known:
                self._condition.show(discovery)
        else:
            self._has_said |= not self._hangs
        if not self._hangs:
            self._turned_at = self._clock()

    def refresh(self) -> None:
        """Have the node written with the next publication, whatever has changed; from any thread.

        kube-scheduler looks at pods that were refused when their node changes, and that an agent has become ready is no change
        of the node.
        """
        self._refresh_wanted = True

    def publish(self) -> None:
        """Write what has to be written, with what the last discovery gave and a new look at the kubelet."""
        if self._refresh_wanted:
            self._refresh_wanted = False
            self._publication.refresh()
        discovery, look = self._discovery, self._kubelet.last_look if self._kubelet else None
        heard = self._heard  # what is heard of during the look is not what the look answers
        if discovery is None or not self._publication.patch(discovery, self._clock(), look, heard):
            self._has_said |= self._publication.is_known
            if self._kubelet and look and discovery and self._publication.is_known:
                self._kubelet.published(look)  # an agent before this one may have written it
            return
        look = self._kubelet.look() if self._kubelet else None
        if patch := self._publication.patch(discovery, self._clock(), look, heard):
            self._write(patch, look if keys.OBSERVED in patch.annotations else None)

    def heard(self, version: NodeVersion) -> None:
        """Take in a version of the node; from one thread, which may be another one."""
        self._heard = version
        if self._kubelet:
            self._kubelet.heard(version)

    def interval_seconds(self, usual: float) -> float:
        """Return how long it is to be from one turn to the next."""
        return usual + _STORM_PAUSE_SECONDS if self._machine.in_storm else usual

    def pause_seconds(self, longest: float) -> float:
        """Return how long there is nothing to do unless something happens, at most `longest`."""
        pause = self._publication.pause_seconds(self._clock())
        return min(pause, longest) if pause and self._discovery else longest

    def _learn(self) -> None:
        if self._publication.is_known or not self._publication.may_ask(self._clock()):
            return
        try:
            self._publication.learned(self._node.read(), self._clock())
        except ApiError as error:
            self._publication.failed(self._clock())
            log.warning("cannot read the node", reason=str(error))
            return
        if self._before is NOTHING:
            self._before = self._publication.last_discovery()

    def _discover(self) -> NodeDiscovery | None:
        """Return what the node is now, or `None` when it has no NVML and never had GPUs."""
        self._hangs = False
        try:
            return self._machine.discover(self._before)
        except NvmlUnavailable as error:
            code = error.code
            if code == CLOSED:
                return None
            if code == PAUSED:
                return self._machine.paused(self._before, error.reason) if self._before.topology.gpus else None
            self._hangs = code == TIMED_OUT
            self._metrics.failed(code)
            log.warning("nvml does not work", reason=str(error))
            if code == STALE_LIBRARY:
                raise
        if not self._before.topology.gpus or (self._hangs and self._machine.in_storm):
            return None  # in a storm of memory errors an answer is late, and no GPU is sick for that
        return self._machine.blackout(self._before, code)

    def _write(self, patch: Patch, look: Look | None) -> None:
        """Write; `look` is what of containers is told with it."""
        if patch.refused:
            log.error("the topology cannot be published", reason=str(patch.refused))
        if self._kubelet and look and not self._kubelet.about_to_publish(look):
            log.warning("the kubelet does not offer yet what the node is to say, so it is said later")
            return
        try:
            annotations = self._node.write(patch.annotations)
        except ApiError as error:
            self._publication.failed(self._clock())
            self._metrics.wrote(str(error.status))
            log.warning("cannot write the node", reason=str(error))
            return
        self._publication.learned(annotations, self._clock())
        self._has_said = True
        if self._kubelet and look:
            self._kubelet.published(look)
        if self._kubelet:  # no claim is written on what was said before, so none is to come that is not in this ledger
            self._kubelet.heard(NodeVersion("", ledger=annotations.get(keys.LEDGER)))
        self._metrics.wrote("ok")
        log.info("wrote the node", keys=", ".join(sorted(patch.annotations)))
