"""What is said to pods about sick GPUs: their own, and those of their group."""

from __future__ import annotations

from typing import Final

from extender.cluster.sickness import Stricken
from extender.kubernetes.events import Event, PodName
from extender.kubernetes.evictor import EVICTED, NOT_EVICTED
from topology.node.status import name_of

SICK: Final = "GPUSick"
MEMBER_SICK: Final = "GroupMemberSick"


def gpu_sick(pod: PodName, stricken: Stricken, fate: str) -> Event:
    """Say which GPUs of a pod have fallen sick, why, and what becomes of the pod."""
    return Event(pod, SICK, f"holds {_sick(stricken)}; {fate}", "Warning", _case(stricken), is_of_health=True)


def member_sick(pod: PodName, stricken: Stricken) -> Event:
    """Say that a pod of the same group, and of the same namespace, holds sick GPUs."""
    note = f"{stricken.pod.key[1]} of the same group holds {_sick(stricken)}; this pod goes on"
    return Event(pod, MEMBER_SICK, note, "Warning", f"{stricken.pod.uid} {_case(stricken)}", is_of_health=True)


def evicted(pod: PodName, stricken: Stricken) -> Event:
    """Say why a pod had to go."""
    return Event(pod, EVICTED, f"evicted, as it asks: it holds {_sick(stricken)}", "Warning", is_of_health=True)


def not_evicted(pod: PodName, why: str) -> Event:
    """Say why a pod is still there that asks to be evicted."""
    return Event(
        pod, NOT_EVICTED, f"asks to be evicted for a sick GPU, and could not be: {why}", "Warning", is_of_health=True
    )


def _sick(stricken: Stricken) -> str:
    count = "a sick GPU" if len(stricken.gpus) == 1 else f"{len(stricken.gpus)} sick GPUs"
    named = "; ".join(f"{name_of(gpu.uuid, gpu.index)}: {gpu.reason}" for gpu in stricken.gpus)
    return f"{count} of {stricken.node}, {named}"


def _case(stricken: Stricken) -> str:
    return " ".join(f"{gpu.uuid}@{gpu.since}" for gpu in stricken.gpus)
