"""Decides which of several replicas does work that one has to do: the replica that holds a Lease, elected as in client-go.

A holder that cannot renew its Lease stops acting before another replica may take it. Clocks of machines are not compared. A Lease
has expired when the replica that reads it has seen no change for its duration. A process may sleep between the check and its
next write, so nothing that must be correct may depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Final
from urllib.parse import quote

import msgspec

from extender.kit.clock import Clock, Instant
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import MERGE_PATCH, Request, Send, managed

DURATION_SECONDS: Final = 15
"""After which a Lease that nobody renews may be taken."""
ACTS_FOR_SECONDS: Final = 10.0
"""For which a holder acts after it has sent its last renewal."""
RENEW_SECONDS: Final = 3.0
LONGEST_SECONDS: Final = 60
"""Of a duration that somebody else has written."""
_NOT_FOUND, _CONFLICT = 404, 409


class LeaseRefused(Exception):
    """The API server lets us neither hold nor read the Lease."""


def path_of_lease(namespace: str, name: str) -> str:
    """Return where the API serves a Lease.

    >>> path_of_lease("gputopo", "gputopo-queue")
    '/apis/coordination.k8s.io/v1/namespaces/gputopo/leases/gputopo-queue'
    """
    return f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases/{quote(name, safe='')}"


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


@dataclass(slots=True)
class Leadership:
    """What one replica makes of a Lease; `renew` has to be called every `RENEW_SECONDS`."""

    send: Send
    clock: Clock
    namespace: str
    name: str
    identity: str
    """Other replicas have another one. After a restart it should be the same, so that nobody waits for the Lease to expire."""
    _acts_until: float = -inf
    """Monotonic seconds."""
    _seen: tuple[str, float] = field(default=("", 0.0))
    """The newest version of the Lease, and since when this replica has seen it."""

    @property
    def is_held(self) -> bool:
        """Whether this replica acts."""
        return self.clock().monotonic < self._acts_until

    async def renew(self) -> None:
        """Renew the Lease, or take it where it has expired; without an answer try again later.

        Raises:
            LeaseRefused: this replica lacks a right, or the namespace does not exist.

        """
        now = self.clock()
        try:
            lease = await self._read()
            if lease is not None and not self._may_take(lease, now.monotonic):
                self._acts_until = -inf
            elif await self._write(lease, now):
                self._acts_until = now.monotonic + ACTS_FOR_SECONDS
        except Unavailable:
            return

    def _may_take(self, lease: _Lease, now: float) -> bool:
        version, spec = lease.metadata.resource_version, lease.spec
        if version != self._seen[0]:
            self._seen = version, now
        duration = min(spec.lease_duration_seconds or DURATION_SECONDS, LONGEST_SECONDS)
        return spec.holder_identity in (self.identity, "", None) or now - self._seen[1] >= duration

    async def _read(self) -> _Lease | None:
        status, body = await self.send(Request("GET", self._path))
        return None if status == _NOT_FOUND else self._decoded(status, body)

    async def _write(self, lease: _Lease | None, now: Instant) -> bool:
        """Return whether the Lease is ours; it is not if another replica was faster."""
        time = datetime.fromtimestamp(now.wall, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": self.identity, "leaseDurationSeconds": DURATION_SECONDS, "renewTime": time}
        if lease is None or lease.spec.holder_identity != self.identity:
            changes = (lease.spec.lease_transitions or 0) + 1 if lease else 0
            spec |= {"acquireTime": time, "leaseTransitions": changes}
        version = {"resourceVersion": lease.metadata.resource_version} if lease else {}
        body = msgspec.json.encode({"metadata": {"name": self.name} | version, "spec": spec})
        if lease is None:
            request = Request("POST", managed(self._path.rpartition("/")[0]), body)
        else:
            request = Request("PATCH", managed(self._path), body, MERGE_PATCH)
        status, answer = await self.send(request)
        if status == _CONFLICT:
            return False
        self._decoded(status, answer)
        return True

    def _decoded(self, status: int, body: bytes) -> _Lease:
        if status >= 300:
            raise LeaseRefused(f"Lease {self.namespace}/{self.name}: HTTP {status}")
        try:
            return msgspec.json.decode(body, type=_Lease)
        except msgspec.MsgspecError as error:
            raise LeaseRefused(f"Lease {self.namespace}/{self.name}: {error}") from None

    @property
    def _path(self) -> str:
        return path_of_lease(self.namespace, self.name)
