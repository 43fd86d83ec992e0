"""Use an NVLink that was down again only when it has stayed up for a while, and report each change once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent.health.policy import HealthPolicy

Links = Mapping[str, Mapping[int, "LinkRecord"]]
"""By GPU, and by NVML's number of the link."""


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """What is remembered of one link; times in seconds."""

    is_down: bool = False
    up_since: float | None = None
    """`None`: as far as is known it has never been down."""
    out_since: float | None = None
    """Since when rings do without it."""
    is_told: bool = False
    """Whether people know that."""

    def told(self, is_down: bool, now: float) -> LinkRecord:
        """Return the record after one more look."""
        if is_down == self.is_down:
            return self
        if is_down:
            return replace(self, is_down=True, out_since=self.out_since if self.is_told else now)
        return replace(self, is_down=False, up_since=now)

    def settled(self, now: float) -> LinkRecord:
        """Return the record where nothing is remembered of a time to come: the clock was wrong, then or now."""
        last = max((since for since in (self.up_since, self.out_since) if since is not None), default=now)
        return self.moved(now - last) if last > now else self

    def moved(self, seconds: float) -> LinkRecord:
        """Return the record with all its times moved by so much."""
        up, out = self.up_since, self.out_since
        return replace(
            self,
            up_since=None if up is None else up + seconds,
            out_since=None if out is None else out + seconds,
        )

    def is_usable(self, policy: HealthPolicy, now: float) -> bool:
        """Whether rings may use it."""
        return now >= self.usable_at(policy)

    def usable_at(self, policy: HealthPolicy) -> float:
        """Return when it is used again, if it stays up; infinite while it is down."""
        if self.is_down:
            return math.inf
        return -math.inf if self.up_since is None else self.up_since + policy.link_up


WELL = LinkRecord()


@dataclass(frozen=True, slots=True)
class LinkChange:
    """What people are to be told of some links of one GPU."""

    gpu: str
    links: tuple[int, ...]
    """Ascending."""
    are_used: bool
    """Again; else rings do without them from now on."""


class NodeLinks:
    """All NVLinks of one node. A link that has not come up yet may lack its bridge, or be in training: it is no fault."""

    def __init__(
        self, policy: HealthPolicy, in_trouble: Links = MappingProxyType({}), *, has_booted: bool = False
    ) -> None:
        """Begin with what an earlier agent has kept, perhaps before the machine was started anew."""
        self._policy = policy
        self._records = {(gpu, link): record for gpu, links in in_trouble.items() for link, record in links.items()}
        self._to_see_again = set(self._records) if has_booted else set()
        """Links that are none, if they are down now: somebody may have taken out their bridge."""

    @property
    def in_trouble(self) -> dict[str, dict[int, LinkRecord]]:
        """What has to be kept over a restart: the links that are down, or not up for long."""
        troubled: defaultdict[str, dict[int, LinkRecord]] = defaultdict(dict)
        for (gpu, link), record in sorted(self._records.items()):
            if record != WELL:
                troubled[gpu][link] = record
        return dict(troubled)

    def move(self, seconds: float) -> None:
        """Take in that the clock has stepped by so much: what is remembered moves with it."""
        self._records = {key: record.moved(seconds) for key, record in self._records.items()}

    def has(self, gpus: Iterable[str]) -> None:
        """Take in which GPUs the node has; the links of others are forgotten."""
        present = frozenset(gpus)
        self._records = {key: record for key, record in self._records.items() if key[0] in present}

    def looked_at(self, gpu: str, link: int, now: float, *, is_down: bool) -> bool:
        """Take in a look at one link; returns whether rings may use it."""
        if (gpu, link) in self._to_see_again:
            self._to_see_again.remove((gpu, link))
            if is_down:
                self._records.pop((gpu, link), None)
        record = self._records.get((gpu, link))
        if record is None and is_down:
            return False
        record = self._records[gpu, link] = (record or WELL).settled(now).told(is_down, now)
        return record.is_usable(self._policy, now)

    def should_be_up(self, gpu: str, link: int, now: float) -> None:
        """Take in that a link is down that is up on the GPU's siblings."""
        self._records.setdefault((gpu, link), WELL.told(True, now))

    def usable_at(self, record: LinkRecord) -> float:
        """Return when a link is used again, if it stays up; infinite while it is down."""
        return record.usable_at(self._policy)

    def changes(self, now: float) -> list[LinkChange]:
        """Return what is new since the last call, by GPU; each is told once."""
        out: defaultdict[str, list[int]] = defaultdict(list)
        back: defaultdict[str, list[int]] = defaultdict(list)
        for (gpu, link), kept in sorted(self._records.items()):
            if kept == WELL:
                continue
            record = self._records[gpu, link] = kept.settled(now)
            if record.is_usable(self._policy, now):
                self._records[gpu, link] = WELL
                if record.is_told:
                    back[gpu].append(link)
            elif not record.is_told:
                self._records[gpu, link] = replace(record, is_told=True)
                out[gpu].append(link)
        unused = [LinkChange(gpu, tuple(links), are_used=False) for gpu, links in out.items()]
        return unused + [LinkChange(gpu, tuple(links), are_used=True) for gpu, links in back.items()]
