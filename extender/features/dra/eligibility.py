"""Which free GPUs of a node a pod may have, by the selectors, tolerations and constraints of its claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extender.features.dra.inventory import NodeInventory
from extender.features.dra.requests import DemandOption
from extender.features.dra.selectors import Selectors


@dataclass(frozen=True, slots=True)
class NodeChoices:
    """What a pod may have of one node."""

    sets: tuple[frozenset[str], ...] = ()
    """UUIDs: all GPUs of the pod come from one of these sets, which do not overlap; the largest first. Empty: no room."""
    reasons: Mapping[str, str] | None = None
    """UUID → why the pod may not have this GPU."""
    trouble: str | None = None
    """Why nothing of this node can be said: a selector failed."""


def choices(option: DemandOption, inventory: NodeInventory, selectors: Selectors) -> NodeChoices:
    """Return the sets of GPUs of which each is large enough; linear in devices and selectors."""
    raise NotImplementedError
