"""Which of two versions of an object is the newer one, and what a list says of versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from extender.cluster.objects.kinds import ObjectMeta

MAX_DIGITS: Final = 20
"""Of a resourceVersion."""


def is_older(this: ObjectMeta, cached: ObjectMeta) -> bool:
    """Whether `this` may be passed over because the cache already holds the same or a newer version of the object.

    resourceVersions of one resource are decimal numbers that grow (KEP-5504 makes a rule of what always was). The reply to
    our own write may come before or after the watch event of an older one; so neither takes the cache back. Where they are
    no numbers, the last one heard counts: that costs a conflict, never safety.
    """
    a, b = _number(this.resource_version), _number(cached.resource_version)
    return this.uid == cached.uid and a is not None and b is not None and a <= b


def is_same_version(this: ObjectMeta, cached: ObjectMeta) -> bool:
    """Whether both are one version of one object."""
    return this.uid == cached.uid and this.resource_version == cached.resource_version


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list says beside the objects that it shows."""

    version: str = ""
    """What it is of. A known version beyond it is the reply to a later write; where nothing is said, none is."""
    unread: tuple[ObjectMeta, ...] = ()
    """Objects that exist, and of which no more can be told: what was known of them stays."""

    def precedes(self, cached: ObjectMeta) -> bool:
        """Whether a known version of an object is later than the list, which is believed otherwise, whatever its versions.

        They are lower than known ones after a restore of etcd from a backup.
        """
        return is_before(self.version, cached.resource_version)


NOTHING_MORE: Final = Listing()


def is_before(this: str, other: str) -> bool:
    """Whether one resourceVersion is lower than another; it is not, where either is no number."""
    a, b = _number(this), _number(other)
    return a is not None and b is not None and a < b


def _number(version: str) -> int | None:
    """Return a resourceVersion as a number; etcd counts in 64 bits, and Python refuses to read thousands of digits."""
    return int(version) if version.isdecimal() and len(version) <= MAX_DIGITS else None
