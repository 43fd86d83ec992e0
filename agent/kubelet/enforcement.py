"""Mode `enforce` put together: lock, journal, admission and registration of our own device plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from agent.config import AgentConfiguration
from agent.gpus.facts import ProcessPort
from agent.kubelet.listing.pod_lists import PodLists
from agent.kubelet.lock import NodeLock
from agent.kubelet.serving.admission import Admission, AllocationMetrics, AllocationRecords
from agent.kubelet.serving.device_nodes import DeviceNodes
from agent.kubelet.serving.device_plugin import DevicePluginService, Injection
from agent.kubelet.serving.journal_file import JournalFile
from agent.kubelet.serving.offering import Offering
from agent.kubelet.serving.registration import Registration, remove_leftovers
from agent.kubelet.serving.vacancy import Vacancy
from agent.limits.limiter import Limiter
from agent.limits.share import Share
from agent.node.ledger import LedgerReader, NodeLedger
from agent.plugin.choice.choose import ScorerPort
from agent.plugin.choice.forms import DeviceForm, Shared, Whole
from agent.plugin.choice.shares import Shareable
from agent.plugin.readiness import Setting
from topology.annotations import keys
from topology.annotations.codec import digest

NOT_IN_LEDGER = "the ledger does not say yet that its share is of this GPU"
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
    limiter: Callable[[], Limiter] | None = None
    """Makes who holds containers to their shares, for one event loop; `None`: nothing is shared."""


class Enforcement:
    """Our own device plugin, for each resource once; `setting` returns what was seen last around the kubelet.

    `limiter` holds containers to their shares.
    """

    def __init__(
        self,
        settings: AgentConfiguration,
        ports: Ports,
        lists: PodLists,
        offering: Offering,
        limiter: Limiter | None,
        setting: Callable[[], Setting],
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._devices = offering.lists
        self._lists = lists
        self._offering = offering
        self._limiter = limiter
        self._setting = setting
        self._lock = NodeLock(settings.enforce.state)
        self._admission: Admission | None = None
        self._registrations: dict[str, Registration] = {}
        self._sessions: dict[str, str] = {}
        self._numbers = count(1)
        self.scorer: ScorerPort | None = None
        """Set once the node's topology is known, and again when it changes."""

    @property
    def locked(self) -> bool:
        """Whether we are the node's only agent."""
        return self._lock.held

    @property
    def session(self) -> str:
        """Of the registrations, if all stand; else empty."""
        sessions = [self._sessions.get(resource, "") for resource in sorted(self._devices.by_resource)]
        if not all(sessions):
            return ""
        return digest("/".join(sessions)) if len(sessions) > 1 else "".join(sessions)

    def register_again(self) -> None:
        """Take the resources back from whoever has them now."""
        for registration in self._registrations.values():
            registration.again()

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
            AllocationRecords(self._lists, ledger, journal),
            self._ports.metrics,
            self._ports.clock,
            enforce.deadline,
            vacancy.wait,
            self._held_to if self._limiter else None,
        )
        await ledger.read(enforce.deadline)  # so that there is one to fall back on
        remove_leftovers(self._settings.kubelet.device_plugins)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._devices.grown()  # a kubelet that hears of no device would take the resource away
                for resource in self._devices.by_resource.keys() - self._registrations.keys():
                    registration = self._registrations[resource] = self._register(resource, admission)
                    tasks.create_task(registration.run())

    def _register(self, resource: str, admission: Admission) -> Registration:
        devices = self._devices.by_resource[resource]
        return Registration(
            self._settings.kubelet.device_plugins,
            resource,
            lambda: DevicePluginService(devices, admission, self._injection, self._form(resource)),
            partial(self._session_changed, resource),
            self._ports.metrics.registered,
            self._numbers,
        )

    async def _held_to(self, shares: Collection[Share]) -> str | None:
        """Hold a pod to its shares; return why its container has to wait: one that no ledger knows cannot be held."""
        if not shares and self._settings.sharing.limits == "required":
            return NOT_IN_LEDGER
        return await self._limiter.before_start(shares) if shares and self._limiter else None

    def _form(self, resource: str) -> DeviceForm:
        if resource == keys.SHARE_RESOURCE:
            return Shared(self._scorer, self._shareable)
        return Whole(self._scorer, lambda: self._devices.elsewhere(resource), lambda: self._offering.silicon)

    def _shareable(self) -> Shareable:
        setting, gib = self._settings.sharing.gpus, self._offering.shareable
        return Shareable(gib, setting if isinstance(setting, int) else len(gib), self._offering.silicon)

    def _scorer(self) -> ScorerPort:
        assert self.scorer is not None, "no device was ever listed"
        return self.scorer

    def _injection(self) -> Injection:
        enforce = self._settings.enforce
        by_cdi = enforce.cdi == "always" or (enforce.cdi == "auto" and self._setting().cdi)
        nics = {device.uuid: device.nics for device in self._devices.devices} if enforce.nccl_ib_hca else {}
        passes_nodes = enforce.device_specs == "always" or (enforce.device_specs == "auto" and not by_cdi)
        switches = {"gdrcopy": enforce.gdrcopy, "gds": enforce.gds, "mofed": enforce.mofed}
        return Injection(
            enforce.env,
            enforce.cdi_kind if by_cdi else None,
            nics,
            self._limiter,
            DeviceNodes(enforce.dev_folder, {device.uuid: device.nodes for device in self._devices.devices}),
            passes_nodes=passes_nodes,
            imex_channels=enforce.imex_channels,
            features=tuple(feature for feature, is_on in switches.items() if is_on),
            cdi_devices=self._setting().cdi_devices if by_cdi else frozenset(),
        )

    def _session_changed(self, resource: str, session: str) -> None:
        self._sessions[resource] = session
        if not session:
            self._lists.kubelet_restarted()
            if self._admission:
                self._admission.kubelet_restarted()
