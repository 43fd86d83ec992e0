"""What NVIDIA's device plugin can be told of sharing, MIG and names, and what follows from it by its own rules.

Of the fields of its file, `devices` and `rename` of a shared resource are left out: the plugin reads and ignores them (v0.19.3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Any

import yaml

from extender.cluster.candidates.openness import NONE_WHOLE
from tests.cluster.objects import GPU
from topology.node.offers import OfferForm, ResourceOffer

GPUS, SLICES_PER_GPU, REPLICAS = 8, 2, 2
SLICES = "nvidia.com/mig-1g.5gb"
_ABSENT = "nvidia.com/mig-7g.40gb"
"""A resource that the machine does not have: what is said of sharing it has no effect."""


class Shares(StrEnum):
    """What is shared, and how."""

    NOTHING = "nothing"
    GPUS = "GPUs by turns"
    SLICES = "slices by turns"
    GPUS_BY_MPS = "GPUs by MPS"


@dataclass(frozen=True, slots=True)
class Configuration:
    """One of 48."""

    shares: Shares
    strategy: str
    """Of MIG: `none`, `single`, `mixed`."""
    renames: bool
    """`renameByDefault`."""
    fails: bool
    """`failRequestsGreaterThanOne`."""

    def __str__(self) -> str:
        """Name it for people."""
        renamed, fails = "yes" if self.renames else "no", "yes" if self.fails else "no"
        return f"{self.shares} | {self.strategy} | {renamed} | {fails}"

    @property
    def slug(self) -> str:
        """A name for its pods, which no pod on the node had before: what is seen of one may be of its namesake."""
        renamed, fails = "renamed" if self.renames else "same", "fails" if self.fails else "gives"
        return f"{self.strategy}-{self.shares.name.lower().replace('_', '-')}-{renamed}-{fails}"

    def file(self) -> str:
        """Return the plugin's configuration file."""
        of = {Shares.NOTHING: _ABSENT, Shares.SLICES: SLICES}.get(self.shares, GPU)
        sharing: dict[str, Any] = {
            "renameByDefault": self.renames,
            "failRequestsGreaterThanOne": self.fails,
            "resources": [{"name": of, "replicas": REPLICAS}],
        }
        how = "mps" if self.shares is Shares.GPUS_BY_MPS else "timeSlicing"
        return yaml.safe_dump({"version": "v1", "flags": {"migStrategy": self.strategy}, "sharing": {how: sharing}})

    @property
    def cut(self) -> Sequence[int]:
        """The GPUs with MIG on, on a machine on which the strategy makes sense."""
        cut: dict[str, Sequence[int]] = {"none": (), "single": range(GPUS), "mixed": (1, 6)}
        return cut[self.strategy]

    @property
    def starts(self) -> bool:
        """Whether the plugin runs at all: it knows no MPS for MIG devices, nor beside them."""
        return self.shares is not Shares.GPUS_BY_MPS or self.strategy == "none"

    @property
    def shares_gpus(self) -> bool:
        """Whether GPUs that are not cut are shared."""
        return self.shares in (Shares.GPUS, Shares.GPUS_BY_MPS)

    @property
    def whole(self) -> int:
        """How many GPUs pods can have whole."""
        return 0 if self.shares_gpus else GPUS - len(self.cut)

    @property
    def slices_as_gpus(self) -> bool:
        """Whether a pod that asks for GPUs gets slices."""
        return self.strategy == "single" and self.starts and not self.shares_gpus

    @property
    def whole_as(self) -> ResourceOffer:
        """How GPUs that are not cut are offered."""
        return self._offer(GPU, OfferForm.WHOLE, 1, is_shared=self.shares_gpus)

    @property
    def cut_as(self) -> ResourceOffer:
        """How those that are cut are offered."""
        if self.strategy == "single":
            return self._offer(GPU, OfferForm.SLICED, SLICES_PER_GPU, is_shared=self.shares_gpus)
        return self._offer(SLICES, OfferForm.SLICED, SLICES_PER_GPU, is_shared=self.shares is Shares.SLICES)

    @property
    def gives_two(self) -> bool:
        """Whether one pod may have two replicas; with MPS none may, whatever the file says."""
        return not self.fails and self.shares is not Shares.GPUS_BY_MPS

    @property
    def refusal(self) -> str:
        """What a pod is told that asks for whole GPUs where there are none."""
        offers_none = self.renames and self.shares_gpus
        if not self.starts or offers_none:
            return f"Insufficient {GPU}"
        if self.shares_gpus and self.strategy != "mixed":
            return NONE_WHOLE
        return "whole: MIG is on" if self.strategy == "single" else "no suitable GPU is free"

    def _offer(self, resource: str, form: OfferForm, parts: int, *, is_shared: bool) -> ResourceOffer:
        if not is_shared:
            return ResourceOffer(resource, form, parts)
        return ResourceOffer(f"{resource}.shared" if self.renames else resource, OfferForm.SHARED, parts * REPLICAS)


def every() -> Iterator[Configuration]:
    """Yield all of them."""
    for strategy, shares, renames, fails in product(("none", "single", "mixed"), Shares, (False, True), (False, True)):
        yield Configuration(shares, strategy, renames, fails)


DAILY = frozenset(
    {
        Configuration(Shares.NOTHING, "none", renames=False, fails=False),
        Configuration(Shares.GPUS, "none", renames=False, fails=False),
        Configuration(Shares.GPUS, "none", renames=True, fails=True),
        Configuration(Shares.GPUS_BY_MPS, "none", renames=False, fails=False),
        Configuration(Shares.NOTHING, "single", renames=False, fails=False),
        Configuration(Shares.GPUS_BY_MPS, "single", renames=False, fails=False),
        Configuration(Shares.GPUS, "mixed", renames=False, fails=True),
        Configuration(Shares.SLICES, "mixed", renames=True, fails=False),
    }
)
"""The eight that differ most."""
