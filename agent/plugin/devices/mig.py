"""How MIG slices are offered to pods, in NVIDIA's three strategies: what somebody else's plugin does, and what we may."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.plugin.devices.offers import NOT_OFFERED, REPLICA, SHARED
from topology.annotations.keys import MIG_PREFIX, SHARE_RESOURCE
from topology.node.silicon import SLICE_PREFIX
from topology.node.status import MigStrategy


def is_ours(name: str, resource: str) -> bool:
    """Whether a resource is that of whole GPUs, one of MIG slices, or that of shares."""
    return name in (resource, SHARE_RESOURCE) or name.startswith(MIG_PREFIX)


def strategy_of(resource: str, offered: Mapping[str, Collection[str]]) -> MigStrategy | None:
    """Return the strategy of whoever offers these devices, by resource; `None` where nothing is offered that tells.

    Slices that are shared count as not offered: no pod can have one.

    >>> strategy_of("nvidia.com/gpu", {"nvidia.com/mig-1g.10gb": ["MIG-a"]}), strategy_of("nvidia.com/gpu", {})
    (<MigStrategy.MIXED: 'mixed'>, None)
    """
    ours = {name: devices for name, devices in offered.items() if devices and is_ours(name, resource)}
    for name, devices in ours.items():
        if any(device.startswith(SLICE_PREFIX) and REPLICA not in device for device in devices):
            return MigStrategy.SINGLE if name == resource else MigStrategy.MIXED
    return MigStrategy.NONE if ours else None


def withheld_slices(
    resource: str, strategy: MigStrategy, offered: Mapping[str, Collection[str]], slices: Collection[str]
) -> Mapping[str, str]:
    """Return which of a node's slices no pod may be planned on, and why; where none is offered that is said once for all."""
    if strategy is MigStrategy.NONE:
        return {}
    devices = {device for name, of in offered.items() if is_ours(name, resource) for device in of}
    parts = {device.partition(REPLICA)[0] for device in devices if REPLICA in device}
    return {device: SHARED if device in parts else NOT_OFFERED for device in sorted(slices) if device not in devices}


def why_unserved(strategy: MigStrategy, profiles: Collection[str], *, has_whole_gpus: bool) -> str:
    """Return why we do not serve slices of these profiles; empty: we do."""
    if strategy is MigStrategy.NONE:
        return "MIG slices are not served: the MIG strategy is none"
    if strategy is MigStrategy.SINGLE and has_whole_gpus:
        return "MIG slices are not served: the MIG strategy is single, and GPUs of the node are whole"
    if strategy is MigStrategy.SINGLE and len(set(profiles)) > 1:
        return f"MIG slices are not served: the MIG strategy is single, and they are {', '.join(sorted(set(profiles)))}"
    return ""
