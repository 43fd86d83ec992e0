"""What of all pods to come a node meets: those that its GPUs will do for, and what a share of so many GiB is there.

A pod goes to one of the GPUs that will do for it. So a kind that may use few of the cluster's GPUs comes to each of them the more
often. Of two nodes that are alike otherwise, a pod that may have either leaves alone the one that more is asked of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from topology.value.fragmentation import WHOLE_GPU_MILLI, DemandProfile, PodKind

WANTED = 3.0
"""What a GPU that all pods want is worth beyond one that none does, in fragmented GPUs. Chosen on pods made up for every fourth
node of Alibaba's cluster, of which a third or two thirds name models; there 1 is up to 1.4 points worse."""


def coming_to(
    model: str, kinds: Sequence[tuple[PodKind, float]], gpus: Mapping[str, int]
) -> list[tuple[PodKind, float]]:
    """Return what comes to a node with GPUs of one model, of all that comes to the cluster.

    Args:
        model: Of the node's GPUs.
        kinds: All, with their shares.
        gpus: How many GPUs of each model the cluster has.

    """
    rates = [
        (kind, share / sum(count for name, count in gpus.items() if _will_do(kind, name)))
        for kind, share in kinds
        if _will_do(kind, model)
    ]
    total = sum(rate for _, rate in rates)
    return [(kind, rate / total) for kind, rate in rates]


def _will_do(kind: PodKind, model: str) -> bool:
    return not kind.models or any(name == model or fnmatchcase(model.lower(), name) for name in kind.models)


class PodsToCome:
    """The pods to come, as each sort of node meets them."""

    def __init__(self, kinds: Sequence[tuple[PodKind, float]], gpus: Mapping[str, int]) -> None:
        """Take all kinds with their shares, and how many GPUs of each model the cluster has."""
        self._kinds = [(kind, share) for kind, share in kinds if kind.gpus]
        self._gpus = gpus
        self._profiles: dict[tuple[str, int], DemandProfile] = {}

    def at(self, model: str, share_gib: int) -> DemandProfile:
        """Return what comes to nodes with GPUs of this model, of which shares may take so many GiB; then it is a look-up."""
        found = self._profiles.get((model, share_gib))
        if found is None:
            gpus = self._gpus if model in self._gpus else {**self._gpus, model: 1}
            kinds = [(_of_size(kind, share_gib), share) for kind, share in self._kinds if kind.memory_gib <= share_gib]
            wanted = _wanted(model, kinds, gpus)
            found = self._profiles[model, share_gib] = DemandProfile(coming_to(model, kinds, gpus), wanted)
        return found


def _wanted(model: str, kinds: Sequence[tuple[PodKind, float]], gpus: Mapping[str, int]) -> float:
    """Return how much dearer than others a GPU of this model is: by what is asked of one, against the mean of all GPUs."""
    here = everywhere = 0.0
    for kind, share in kinds:
        asked = share * kind.gpus * kind.gpu_milli
        everywhere += asked / sum(gpus.values())
        if _will_do(kind, model):
            here += asked / sum(count for name, count in gpus.items() if _will_do(kind, name))
    return WANTED * (here / (here + everywhere) - 0.5) if everywhere else 0.0


def _of_size(kind: PodKind, share_gib: int) -> PodKind:
    """Return the kind with its GiB as thousandths of such a GPU, rounded up."""
    if not kind.memory_gib:
        return kind
    return replace(kind, gpu_milli=-(-kind.memory_gib * WHOLE_GPU_MILLI // share_gib), memory_gib=0)
