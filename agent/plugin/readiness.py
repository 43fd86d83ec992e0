"""Whether a pod that is bound now gets its GPUs as it should, and every reason why not; nothing here fails silently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.plugin.alignment import Alignment
from topology.node.status import DevicePluginStatus, Mode

ENDING = "the agent is about to end"
_MAX_SOCKET_PATH_BYTES: Final = 107
"""A limit of the kernel."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What was found around the kubelet at one moment."""

    kubelet_socket: bool = True
    """Whether a kubelet answers in the device plugin folder."""
    rival: str | None = None
    """Name of the live socket of another device plugin for our resource."""
    alignment: Alignment | None = None
    """How the kubelet aligns by NUMA nodes, as far as that is known; `None`: not at all."""
    cpus: Mapping[int, int] = field(default_factory=dict)
    """CPU → its NUMA node."""
    cdi: bool = True
    """Whether CDI specs name all GPUs."""
    cdi_devices: frozenset[str] = frozenset()
    """All that the specs name, `nvidia.com/gds=all`."""
    socket_path_bytes: int = 0
    """Length of the longest socket path that would be ours."""


@dataclass(frozen=True, slots=True)
class PluginProgress:
    """How far the agent has come with its kubelet."""

    answers: bool
    """PodResources answered at the last look."""
    allocatable: frozenset[str] | None = None
    """Devices of our resource that the kubelet would give away; `None` before it was asked."""
    healthy: frozenset[str] = frozenset()
    """GPUs that are fit for new pods."""
    known: frozenset[str] = frozenset()
    """All GPUs of the node."""
    locked: bool = False
    """Whether we are the node's only agent."""
    session: str = ""
    """Of our registration; empty without one."""
    cpus: frozenset[int] = frozenset()
    """That the kubelet can give to a container alone, in use or not."""
    held_cpus: frozenset[int] = frozenset()
    """Those that containers have."""
    ending: bool = False
    """We serve on for a moment, for those who were sent here before it was known."""


def observing(resource: str, setting: Setting, progress: PluginProgress) -> DevicePluginStatus:
    """Return the status of a node whose GPUs another device plugin hands out."""
    against: list[str] = []
    if not progress.answers:
        against.append("PodResources does not answer")
    elif progress.allocatable is not None and not progress.allocatable:
        against.append(f"no device plugin serves {resource}")
    elif progress.allocatable and not progress.allocatable <= progress.known:
        against.append(f"devices of {resource} are not whole GPUs")
    ready = not against and progress.allocatable is not None
    status = DevicePluginStatus(Mode.OBSERVE, ready, reasons=tuple(against))
    return _aligned(status, setting, progress)


def _aligned(status: DevicePluginStatus, setting: Setting, progress: PluginProgress) -> DevicePluginStatus:
    """Return the status with what the kubelet's alignment makes of it."""
    if setting.alignment is None:
        return status
    note = f"topology manager policy {setting.alignment.policy} narrows which GPUs a pod may have"
    return replace(
        status,
        reasons=(*status.reasons, note),
        topology_manager=setting.alignment.told(setting.cpus, progress.cpus, progress.held_cpus),
        also_offered=progress.known & (progress.allocatable or frozenset()) - progress.healthy,
    )


def enforcing(resource: str, setting: Setting, progress: PluginProgress, *, env: bool, cdi: str) -> DevicePluginStatus:
    """Return the status of a node whose device plugin we are.

    Args:
        resource: Ours.
        setting: What was found around the kubelet.
        progress: How far we have come with it.
        env: As configured.
        cdi: As configured.

    """
    against = [ENDING] if progress.ending else []
    if setting.socket_path_bytes > _MAX_SOCKET_PATH_BYTES:
        against.append("the path of the device plugin folder is too long for a socket")
    if not setting.kubelet_socket:
        against.append("no kubelet answers in the device plugin folder")
    if setting.rival:
        against.append(f"another device plugin serves {resource}: {setting.rival}")
    if not progress.locked:
        against.append("another agent serves this node")
    if not progress.answers:
        against.append("PodResources does not answer")
    if not against and not progress.session:
        against.append("not registered with the kubelet")
    elif not against and progress.allocatable != progress.healthy:
        against.append("the kubelet does not offer the GPUs yet that we told")
    notes = []
    if not setting.cdi and (cdi == "always" or not env):
        against.append("no CDI specs name the GPUs, and containers would not get them")
    elif not setting.cdi and cdi == "auto":
        notes.append("no CDI specs name the GPUs: only NVIDIA_VISIBLE_DEVICES tells the runtime")
    if not env and cdi == "never":
        against.append("containers are told of their GPUs neither by environment nor by CDI")
    status = DevicePluginStatus(Mode.ENFORCE, not against, progress.session, (*against, *notes))
    return _aligned(status, setting, progress)
