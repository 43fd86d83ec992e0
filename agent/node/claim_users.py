"""Which containers with devices by ResourceClaims a report names, where its text has no room for all of them.

Tenants choose how many containers there are, and how long their names are. They cannot hide who has the devices of others.
"""

from __future__ import annotations

from dataclasses import replace

from topology.annotations.payload import MAX_BYTES
from topology.annotations.records import ClaimUser, Observed, encode_observed
from topology.errors import PayloadError

_BARE = Observed({})
_LIST_BYTES = len('"claimed":[]')


def as_many_as_fit(observed: Observed) -> tuple[ClaimUser, ...]:
    """Return the containers that the report has room for, in its order.

    One for each device comes first, and shorter entries come before longer ones. There are none where the rest of the
    report is too long already.
    """
    try:
        room_bytes = MAX_BYTES - _LIST_BYTES - len(encode_observed(replace(observed, claimed=())))
    except PayloadError:
        return ()
    first, others, named = list[ClaimUser](), list[ClaimUser](), set[tuple[str, str]]()
    for user in sorted(observed.claimed, key=_characters):
        devices = {(user.pool, device) for device in user.devices}
        (others if devices <= named else first).append(user)
        named |= devices
    fitting = set[ClaimUser]()
    for user in (*first, *others):
        # Few entries are written to see how long they are: a node may have thousands.
        if _characters(user) <= room_bytes and (size_bytes := _bytes_of(user)) is not None and size_bytes <= room_bytes:
            fitting.add(user)
            room_bytes -= size_bytes
    return tuple(user for user in observed.claimed if user in fitting)


def _characters(user: ClaimUser) -> int:
    """Return at least how many bytes an entry takes, cheaply."""
    return len("".join((user.namespace, user.name, user.container, user.claim, user.pool, *user.devices)))


def _bytes_of(user: ClaimUser) -> int | None:
    """Return what an entry and its comma take; `None` for one that cannot be written."""
    try:
        return len(encode_observed(replace(_BARE, claimed=(user,)))) - len(encode_observed(_BARE)) - _LIST_BYTES
    except PayloadError:
        return None
