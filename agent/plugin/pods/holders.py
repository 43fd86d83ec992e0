"""Which containers hold a node's GPUs, whole or in parts, as the kubelet lists them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent.plugin.devices.offers import gpu_of
from agent.plugin.pods.listed_pods import ListedPod
from topology.annotations.records import ClaimUser, Holder, Sharer
from topology.node.silicon import Silicon


@dataclass(frozen=True, slots=True)
class HeldDevices:
    """Who holds what."""

    gpus: Mapping[str, Holder] = field(default_factory=dict)
    """GPU → its holder; of one that is held in parts the first of its sharers."""
    shared: Mapping[str, tuple[Sharer, ...]] = field(default_factory=dict)
    """GPU → the containers that hold parts of it."""
    claimed: tuple[ClaimUser, ...] = ()
    """The containers that have devices by ResourceClaims."""


def held_of(pods: Collection[ListedPod], gpus: Collection[str], silicon: Silicon) -> HeldDevices:
    """Return who holds the node's GPUs, and slices of earlier cuts of these; other devices are passed over."""
    held = {gpu_of(device) for pod in pods for container in pod.containers for device in container.gpus}
    gpus = {*gpus, *(device for device in held if silicon.is_gone(device))}
    whole: dict[str, Holder] = {}
    shared: dict[str, list[Sharer]] = {}
    for pod in sorted(pods, key=lambda pod: pod.key):
        for container in sorted(pod.containers, key=lambda container: container.name):
            who = pod.namespace, pod.name, container.name
            parts = [gpu_of(device) for device in (*container.gpus - gpus, *container.elsewhere)]
            whole |= {gpu: Holder(*who) for gpu in container.gpus & gpus}
            for gpu in sorted(set(parts).intersection(gpus)):
                shared.setdefault(gpu, []).append(Sharer(*who, parts.count(gpu)))
    first = {gpu: Holder(of[0].namespace, of[0].name, of[0].container) for gpu, of in shared.items()}
    return HeldDevices(first | whole, {gpu: tuple(of) for gpu, of in shared.items()}, _claim_users(pods))


def _claim_users(pods: Collection[ListedPod]) -> tuple[ClaimUser, ...]:
    devices_of: dict[tuple[str, str, str, str, str], list[str]] = {}
    for pod in pods:
        for container in pod.containers:
            for claim, pool, device in container.claimed:
                devices_of.setdefault((*pod.key, container.name, claim, pool), []).append(device)
    return tuple(ClaimUser(*user, tuple(sorted(devices))) for user, devices in sorted(devices_of.items()))
