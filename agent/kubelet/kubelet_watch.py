"""What the agent sees of its kubelet, second by second: who holds which GPU, and whether its device plugin is as it should be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType

import structlog

from agent.config import AgentConfiguration
from agent.errors import KubeletUnavailable
from agent.kubelet.enforcement import Enforcement, Ports
from agent.kubelet.listing.pod_lists import PodLists
from agent.kubelet.listing.pod_resources import PodResourcesClient
from agent.kubelet.serving.devices import DeviceLists, PluginDevice
from agent.kubelet.serving.offered import OfferedDevices
from agent.kubelet.serving.offering import Offering
from agent.kubelet.surroundings import look_around, rival_for
from agent.limits.level import LimitsLevel
from agent.limits.limiter import Limiter
from agent.limits.share import shares_of
from agent.node.look import Look
from agent.plugin.choice.choose import ScorerPort
from agent.plugin.devices.device_names import with_uuid
from agent.plugin.devices.mig import strategy_of, why_unserved, withheld_slices
from agent.plugin.devices.offers import REPLICA, Offers, Sliced, offers_of, withheld
from agent.plugin.devices.sharing import UNLIMITED, sharing_of
from agent.plugin.pods.holders import HeldDevices, held_of
from agent.plugin.pods.listed_pods import ListedPod, plans_of, told_by
from agent.plugin.readiness import PluginProgress, Setting, enforcing, observing
from agent.plugin.withdrawal import PublishedDevices
from topology.annotations import keys
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, MigStrategy

log = structlog.get_logger()

LOOK_SECONDS = 2.0
"""How long a look that nobody waits for may take."""
_ROUTINE = 10
"""With every so many looks the surroundings are looked at too, though all seems well."""
_PATIENCE = 2
"""Looks at which the kubelet may offer other devices than we told."""


@dataclass(frozen=True, slots=True)
class _NodeGpus:
    """What a discovery said of the node's GPUs, beside which of them are whole."""

    sliced: Sliced
    unshared: tuple[str, ...]
    uuids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _MigOffer:
    """How slices are offered to pods, and why they are not, in `enforce`."""

    strategy: MigStrategy = MigStrategy.NONE
    unserved: str = ""


class KubeletWatch:
    """Lives on one event loop; `changed` is called when what is seen has changed."""

    def __init__(
        self,
        settings: AgentConfiguration,
        ports: Ports,
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._changed = changed
        self._resources = PodResourcesClient(
            settings.kubelet.pod_resources, settings.resource, lambda device: with_uuid(device, self._gpus.uuids)
        )
        self._gpus = _NodeGpus({}, (), {})
        self._devices = DeviceLists(self._resource_of)
        self._lists = PodLists(self._resources, self._devices.repeat)
        self._offering = Offering(self._devices, lambda: plans_of(ports.ledger.known).values())
        self._offered = OfferedDevices(self._resources, self._devices, settings.resource, LOOK_SECONDS)
        self._setting = Setting(kubelet_socket=False)
        self._held_cpus: frozenset[int] = frozenset()
        self._mig = _MigOffer()
        self._limiter = ports.limiter() if ports.limiter else None
        self._enforcement = (
            Enforcement(settings, ports, self._lists, self._offering, self._limiter, lambda: self._setting)
            if settings.mode == "enforce"
            else None
        )
        self._ledger = ports.ledger
        self._rounds = 0
        self._looks_without_our_devices = 0
        self.ending = False
        """Whether we serve for those only who were sent here before; set it from any thread."""
        self.last_look = Look(self._status(answers=False), None)
        """What was seen last."""

    def take(
        self,
        devices: Iterable[PluginDevice],
        scorer: ScorerPort | None,
        sliced: Sliced = MappingProxyType({}),
        unshared: tuple[str, ...] = (),
        uuids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Take in the node's GPUs as they are now, and beside them which have MIG on, and why any must not be shared.

        An observer needs no scorer. `uuids` are those of devices that another device plugin names in its own way.
        """
        self._gpus = _NodeGpus(sliced, unshared, uuids)
        if self._enforcement:
            self._enforcement.scorer = scorer
        self._offering.cut(sliced)
        self._offering.take(self._served([*devices]))

    async def about_to_publish(self, look: Look) -> bool:
        """Prepare for what the node is about to be told of a look; returns whether the kubelet offers what it has to by then."""
        self._offering.about_to_publish(_told(look))
        return self._enforcement is None or not look.plugin.ready or await self._is_taken()

    def published(self, look: Look) -> None:
        """Take in that the node says now what was seen at that look."""
        self._offering.published(_told(look))

    @property
    def pods(self) -> tuple[ListedPod, ...] | None:
        """The node's pods as they were listed last; `None` while the kubelet does not say."""
        return None if self.last_look.held is None else self._lists.pods

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._poll())
                if self._enforcement:
                    tasks.create_task(self._enforcement.run())
                if self._limiter:
                    tasks.create_task(self._follow(self._limiter))
        finally:
            await self._resources.close()

    async def look(self) -> Look:
        """Look now."""
        before, session = self.last_look, self.last_look.plugin.session
        pods = await self._pods()
        if pods is not None:
            self._offering.saw(pods)
            self._held_cpus = frozenset(cpu for pod in pods for container in pod.containers for cpu in container.cpus)
        routine = self._rounds % _ROUTINE == 0 or not before.plugin.ready
        self._rounds += 1
        if routine or (self._enforcement and self._enforcement.session != session):
            await self._look_around()
        await self._is_taken()  # last, as pods that come meanwhile change the lists
        status = self._status(answers=pods is not None)
        if pods is None:
            self.last_look = Look(status, None, before.withheld, before.offers)
            return self.last_look
        silicon = told_by(self._offering.silicon, plans_of(self._ledger.known).values())
        held = held_of(pods, self._known | self._gpus.sliced.keys() | self._slices, silicon)
        offers, closed = self._on_offer(held) or (before.offers, before.withheld)
        self.last_look = Look(status, held.gpus, closed, offers, held.shared, held.claimed)
        return self.last_look

    def _on_offer(self, held: HeldDevices) -> tuple[Offers, Mapping[str, str]] | None:
        """Return what the node's device plugin offers, and what not to plan on; `None` where that is not known.

        A kubelet lists the devices that are healthy, in use or not. One that lists no GPU proves nothing: its plugin may start.
        """
        if self._enforcement is not None:
            return {}, {}
        resource, whole, offered = self._settings.resource, self._known, self._offered.by_resource
        offers = offers_of(offered, whole, self._gpus.sliced)
        if not any(offers.values()) and not offered.get(resource):
            return None
        slices = withheld_slices(resource, self._mig.strategy, offered, self._slices)
        return offers, {**withheld(resource, offered, offers, whole, held.shared), **slices}

    async def _poll(self) -> None:
        while True:
            before = self.last_look
            after = await self.look()
            if after != before:
                self._tell(before.plugin, after.plugin)
                self._changed()
            self._win_back(after.plugin)
            await asyncio.sleep(self._settings.kubelet.interval)

    async def _follow(self, limiter: Limiter) -> None:
        """Know what holds shares, and keep that in step with the ledger; NVML may take its time, so nobody waits for this."""
        offered: frozenset[str] = frozenset()
        for number in count():
            gpus = frozenset(self._offering.shareable)
            if gpus and (gpus != offered or number % _ROUTINE == 0):
                await limiter.look(gpus)
                offered = gpus
            if (ledger := self._ledger.known) is not None:
                await limiter.follow(shares_of(ledger))
            await asyncio.sleep(self._settings.kubelet.interval)

    def _win_back(self, plugin: DevicePluginStatus) -> None:
        """Register again when the kubelet has not had our devices for some looks, unless another plugin is alive.

        After another plugin has ended, a kubelet before 1.37 has no devices. A later one returns to us, with the other's list.
        """
        is_astray = bool(plugin.session) and self._offered.are_of_another_list
        self._looks_without_our_devices = (
            self._looks_without_our_devices + 1 if is_astray and not self._setting.rival else 0
        )
        if self._enforcement and self._looks_without_our_devices > _PATIENCE:
            self._looks_without_our_devices = 0
            log.warning("the kubelet does not offer our devices, registering again")
            self._enforcement.register_again()

    async def _pods(self) -> tuple[ListedPod, ...] | None:
        try:
            return await self._lists.read(LOOK_SECONDS)
        except KubeletUnavailable:
            return None

    async def _is_taken(self) -> bool:
        """Whether the kubelet offers what it was told, once it was asked."""
        return await self._offered.are_taken(is_served=bool(self._enforcement and self._enforcement.session))

    async def _look_around(self) -> None:
        kubelet, enforce, resource = self._settings.kubelet, self._settings.enforce, self._settings.resource
        setting = await look_around(kubelet, enforce, resource, self._known, self._settings.discovery.sys_root)
        for name in (name for name in tuple(self._devices.by_resource) if name != resource):
            setting = replace(setting, rival=setting.rival or await rival_for(kubelet, name))
        self._setting = setting
        self._offering.align(aligns=setting.alignment is not None)

    def _status(self, *, answers: bool) -> DevicePluginStatus:
        progress = self._progress(answers=answers)
        resource, enforce = self._settings.resource, self._settings.enforce
        if self._enforcement is None:
            self._mig = _MigOffer(strategy_of(resource, self._offered.by_resource) or self._mig.strategy)
            said = observing(resource, self._setting, progress)
            return replace(said, mig=self._mig.strategy, sharing=self._sharing())
        enforcement = self._enforcement
        progress = replace(progress, locked=enforcement.locked, session=enforcement.session, ending=self.ending)
        said = enforcing(resource, self._setting, progress, env=enforce.env, cdi=enforce.cdi)
        notes = (self._mig.unserved,) if self._mig.unserved else ()
        return replace(said, reasons=(*said.reasons, *notes), mig=self._mig.strategy, sharing=self._sharing())

    def _progress(self, *, answers: bool) -> PluginProgress:
        return PluginProgress(
            answers,
            self._offered.ours,
            self._fit,
            self._known | self._slices,
            cpus=self._offered.cpus,
            held_cpus=self._held_cpus,
        )

    def _served(self, devices: Sequence[PluginDevice]) -> Sequence[PluginDevice]:
        """Return the devices that are told the kubelet, in `enforce`; and take note of how slices are offered, or why not."""
        whole = [device for device in devices if not device.profile]
        if self._enforcement is None:
            return whole
        profiles, strategy = {device.profile for device in devices} - {""}, self._settings.enforce.mig_strategy
        unserved = why_unserved(strategy, profiles, has_whole_gpus=bool(whole)) if profiles else ""
        serves = profiles and not unserved
        self._mig = _MigOffer(strategy if serves else MigStrategy.NONE, unserved)
        return devices if serves else whole

    def _sharing(self) -> Sharing | None:
        sharing = self._settings.sharing
        mode, shareable = self._settings.mode, self._offering.shareable
        limiter = self._limiter
        level = limiter.level if limiter else LimitsLevel(Limits.NONE)
        held_back = limiter.held_back if limiter else UNLIMITED if sharing.limits == "required" else ""
        return sharing_of(sharing.gpus, mode, shareable, self._gpus.unshared, level.limits, level.reasons, held_back)

    def _resource_of(self, device: PluginDevice) -> str:
        if REPLICA in device.uuid:
            return keys.SHARE_RESOURCE
        by_profile = device.profile and self._settings.enforce.mig_strategy is MigStrategy.MIXED
        return keys.MIG_PREFIX + device.profile if by_profile else self._settings.resource

    @property
    def _slices(self) -> frozenset[str]:
        return frozenset[str]().union(*self._gpus.sliced.values())

    @property
    def _known(self) -> frozenset[str]:
        return frozenset(device.uuid for device in self._offering.found)

    @property
    def _fit(self) -> frozenset[str]:
        """The devices that the kubelet is to offer: in `enforce` what it was told, else all that are healthy."""
        if self._enforcement and self._devices.by_resource:
            return self._devices.healthy
        return frozenset(device.uuid for device in self._offering.found if device.healthy)

    def _tell(self, before: DevicePluginStatus, after: DevicePluginStatus) -> None:
        if (before.ready, before.reasons) != (after.ready, after.reasons):
            say = log.info if after.ready else log.warning
            say("device plugin", mode=after.mode, ready=after.ready, reasons="; ".join(after.reasons))


def _told(look: Look) -> PublishedDevices:
    """Return what the node says when it is told of a look."""
    shared, sharing = frozenset(look.shared), look.plugin.sharing
    return PublishedDevices(frozenset(look.held or ()) - shared, shared, sharing.max_gpus if sharing else None)
