"""What is done for a pod of the queue once its GPUs stand in the ledger, before its gate is opened; nothing by default.

A feature adds what it does there. The queue knows it by this class alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from extender.binding.intents import Step
from extender.cluster.objects.gpu_pods import GpuPod


class BeforeOpening(Protocol):
    """One thing that is done before gates are opened: for all pods of a gang before the first of them."""

    def is_done(self, pod: GpuPod, node: str) -> bool:
        """Whether the watches show it done, for a pod with claims on the node; also where the pod needs nothing of it."""
        ...

    def do(self, pod: GpuPod, node: str) -> Step[bool]:
        """Do it, or a part of it; returns `False` where the plan has to be given up. It is called again until it is done."""
        ...

    def directs(self, pod: GpuPod) -> bool:
        """Whether that directs the pod to its node; then it needs no affinity, and is not pinned there."""
        ...


@dataclass(slots=True)
class Openings:
    """What features have to do with the gates that this replica opens."""

    steps: list[BeforeOpening] = field(default_factory=list)
    are_here: Callable[[], bool] = lambda: False
    """Whether this replica opens gates, and no other one does; the queue says so."""
