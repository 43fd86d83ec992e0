"""What is said to pods about nodes that autoscalers are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.kubernetes.events import Event, PodName

NODE_ASKED: Final = "GPUNodeAsked"
NODE_NOT_ASKED: Final = "GPUNodeNotAsked"
NODE_CAME: Final = "GPUNodeCame"
NODE_DID_NOT_COME: Final = "GPUNodeDidNotCome"


def node_asked(pod: PodName, gpus: int, groups: Sequence[str], life_seconds: float) -> Event:
    """Say what autoscalers are asked for in the pod's place, and for how long."""
    kinds = " or ".join(groups)
    note = (
        f"asks autoscalers for a new node of {kinds}, by a placeholder for {gpus} GPUs that lives {life_seconds:.0f} s"
    )
    return Event(pod, NODE_ASKED, note, "Normal")


def node_not_asked(pod: PodName, why: str) -> Event:
    """Say why autoscalers are not asked for a node."""
    return Event(pod, NODE_NOT_ASKED, f"autoscalers are not asked for a new node: {why}", "Warning")


def node_came(pod: PodName, node: str) -> Event:
    """Say which new node the pod may go to, once it is known how its GPUs are wired."""
    note = f"{node} is new and would do; it is offered once its GPU agent has reported"
    return Event(pod, NODE_CAME, note, "Normal", node)


def node_did_not_come(pod: PodName, pause_seconds: float) -> Event:
    """Say that a placeholder has ended and its pod still waits."""
    note = f"no new node came that takes the pod; autoscalers are asked again in {pause_seconds:.0f} s at the earliest"
    return Event(pod, NODE_DID_NOT_COME, note, "Warning")
