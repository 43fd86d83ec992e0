"""Which of two versions of an object is the newer one."""

from __future__ import annotations

from extender.cluster.objects import ObjectMeta


def is_older(this: ObjectMeta, known: ObjectMeta) -> bool:
    """Whether `this` may be passed over because the cache already holds the same or a newer version of the object.

    resourceVersions of one resource are decimal numbers that grow (KEP-5504 makes a rule of what always was). The reply to
    our own write may come before or after the watch event of an older one; so neither takes the cache back. Where they are
    no numbers, the last one heard counts: that costs a conflict, never safety.
    """
    a, b = this.resource_version, known.resource_version
    return this.uid == known.uid and a.isdecimal() and b.isdecimal() and int(a) <= int(b)
