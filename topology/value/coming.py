"""What a node meets of all future pods: those that its GPUs suit, and what a share of so many GiB is there.

A pod goes to one of the GPUs that will do for it. So a kind that may use few of the cluster's GPUs comes to each of them the more
often. Of two nodes that are alike otherwise, a pod that may have either leaves alone the one that more is asked of.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache

from topology.value.fragmentation import WHOLE_GPU_MILLI, DemandProfile, PodKind

WANTED = 3.0
"""What a GPU that all pods want is worth beyond one that none does, in fragmented GPUs. Chosen on pods made up for every
fourth node of Alibaba's cluster, of which a third or two thirds name models. There 1 is up to 1.4 points worse."""
MAX_PROFILES = 256
"""Remembered, so that nodes whose payloads change all the time do not fill the memory."""


def matched(kinds: Iterable[tuple[PodKind, float]], models: Iterable[str]) -> Generator[None]:
    """Find out which models the kinds may use, in steps; `PodsToCome` only looks that up."""
    names = [*models]
    for kind, _ in kinds:
        for name in names if kind.models else ():
            _will_do(kind.models, name)
            yield


@lru_cache(maxsize=16_384)
def _will_do(patterns: tuple[str, ...], model: str) -> bool:
    return not patterns or model in patterns or _matcher(patterns).match(model.lower()) is not None


@lru_cache(maxsize=256)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches any of the patterns; of each of them alone Python would forget what it has compiled."""
    return re.compile("|".join(map(translate, patterns)))


class PodsToCome:
    """The pods to come, as each sort of node meets them."""

    def __init__(self, kinds: Sequence[tuple[PodKind, float]], gpus: Mapping[str, int]) -> None:
        """Take all kinds with their shares, and how many GPUs of each model the cluster has."""
        self._kinds = [(kind, share, _count(kind, gpus)) for kind, share in kinds if kind.gpus]
        self._models = frozenset(gpus)
        self._total = sum(gpus.values())
        self._profiles: dict[tuple[str, int], DemandProfile] = {}

    def at(self, model: str, share_gib: int) -> DemandProfile:
        """Return what comes to nodes with GPUs of this model, of which shares may take so many GiB; then it is a look-up."""
        profile = self._profiles.get((model, share_gib))
        if profile is None:
            if len(self._profiles) >= MAX_PROFILES:
                self._profiles.clear()
            wanted = self._wanted(model, share_gib)
            profile = self._profiles[model, share_gib] = DemandProfile(self.kinds_at(model, share_gib), wanted)
        return profile

    def kinds_at(self, model: str, share_gib: int) -> list[tuple[PodKind, float]]:
        """Return the kinds that come there, with their shares of all pods that do."""
        rates = [(kind, share / gpus) for kind, share, gpus, may in self._asking(model, share_gib) if may]
        total = sum(rate for _, rate in rates)
        return [(kind, rate / total) for kind, rate in rates]

    def _wanted(self, model: str, share_gib: int) -> float:
        """Return how much dearer than others a GPU of this model is: by what is asked of one, against the mean of all GPUs."""
        total = self._total + (model not in self._models)
        here = everywhere = 0.0
        for kind, share, gpus, may in self._asking(model, share_gib):
            asked = share * kind.gpus * kind.gpu_milli
            everywhere += asked / total
            here += asked / gpus if may else 0.0
        return WANTED * (here / (here + everywhere) - 0.5) if everywhere else 0.0

    def _asking(self, model: str, share_gib: int) -> Iterator[tuple[PodKind, float, int, bool]]:
        """Yield the kinds that some GPU will do for, with their shares, how many GPUs will, and whether one of these will."""
        is_new = model not in self._models  # its first node came after the GPUs were counted
        for kind, share, gpus in self._kinds:
            if kind.memory_gib <= share_gib:
                may = _will_do(kind.models, model)
                count = gpus + (is_new and may)
                if count:
                    yield _of_size(kind, share_gib), share, count, may


def _count(kind: PodKind, gpus: Mapping[str, int]) -> int:
    """Return how many GPUs the kind may use."""
    return sum(count for name, count in gpus.items() if _will_do(kind.models, name))


def _of_size(kind: PodKind, share_gib: int) -> PodKind:
    """Return the kind with its GiB as thousandths of such a GPU, rounded up."""
    if not kind.memory_gib:
        return kind
    return replace(kind, gpu_milli=-(-kind.memory_gib * WHOLE_GPU_MILLI // share_gib), memory_gib=0)
