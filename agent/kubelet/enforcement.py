"""Mode `enforce` put together: lock, journal, admission and registration of our own device plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agent.config import AgentConfiguration
from agent.gpus.facts import ProcessPort
from agent.kubelet.admission import Admission, AllocationMetrics, Records
from agent.kubelet.device_plugin import DevicePluginService, Injection
from agent.kubelet.devices import DeviceList
from agent.kubelet.journal_file import JournalFile
from agent.kubelet.lock import NodeLock
from agent.kubelet.pod_lists import PodLists
from agent.kubelet.registration import Registration
from agent.kubelet.vacancy import Vacancy
from agent.node.ledger import LedgerReader, NodeLedger
from agent.plugin.choose import Scorer

_RETRY_SECONDS = 0.5


class PluginMetrics(AllocationMetrics, Protocol):
    """What is counted."""

    def registered(self, result: str) -> None:
        """Count one attempt to register: `ok` or `failed`."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What the side towards the kubelet has of the rest of the agent."""

    ledger: NodeLedger
    processes: ProcessPort
    metrics: PluginMetrics
    clock: Callable[[], float]
    """Monotonic seconds."""


class Enforcement:
    """Our own device plugin; `cdi` says at any moment whether specs name the GPUs."""

    def __init__(
        self,
        settings: AgentConfiguration,
        ports: Ports,
        lists: PodLists,
        devices: DeviceList,
        cdi: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._devices = devices
        self._lists = lists
        self._cdi = cdi
        self._lock = NodeLock(settings.enforce.state)
        self._admission: Admission | None = None
        self._registration: Registration | None = None
        self.session = ""
        """Of the registration that stands; empty without one."""
        self.scorer: Scorer | None = None
        """Set once the node's topology is known, and again when it changes."""

    @property
    def locked(self) -> bool:
        """Whether we are the node's only agent."""
        return self._lock.held

    def register_again(self) -> None:
        """Take the resource back from whoever has it now."""
        if self._registration:
            self._registration.again()

    async def run(self) -> None:
        """Serve until cancelled."""
        while not self._lock.acquire():  # noqa: ASYNC110 - no event tells that another process has ended
            await asyncio.sleep(_RETRY_SECONDS)
        ledger, journal = LedgerReader(self._ports.ledger), JournalFile(self._settings.enforce.state)
        vacancy = Vacancy(
            self._ports.processes, self._settings.enforce.process_wait, self._settings.discovery.ignored_processes
        )
        try:
            await self._serve(ledger, journal, vacancy)
        finally:
            ledger.close()
            journal.close()
            self._lock.release()

    async def _serve(self, ledger: LedgerReader, journal: JournalFile, vacancy: Vacancy) -> None:
        enforce = self._settings.enforce
        self._admission = admission = Admission(
            Records(self._lists, ledger, journal),
            lambda: self.scorer,
            self._ports.metrics,
            self._ports.clock,
            enforce.deadline,
            vacancy.wait,
        )
        await ledger.read(enforce.deadline)  # so that there is one to fall back on
        await self._devices.after(0)  # a kubelet that hears of no device would take the resource away
        self._registration = Registration(
            self._settings.kubelet.device_plugins,
            self._settings.resource,
            lambda: DevicePluginService(self._devices, admission, self._injection),
            self._session_changed,
            self._ports.metrics.registered,
        )
        await self._registration.run()

    def _injection(self) -> Injection:
        enforce = self._settings.enforce
        by_cdi = enforce.cdi == "always" or (enforce.cdi == "auto" and self._cdi())
        nics = {device.uuid: device.nics for device in self._devices.devices} if enforce.nccl_ib_hca else {}
        return Injection(enforce.env, enforce.cdi_kind if by_cdi else None, nics)

    def _session_changed(self, session: str) -> None:
        self.session = session
        if not session:
            self._lists.kubelet_restarted()
            if self._admission:
                self._admission.kubelet_restarted()
