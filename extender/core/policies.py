"""Whether the admission policies guard our records: tried rather than read, which takes no further right and proves the effect.

The API server is asked, as a dry run, for a write that the policies forbid to the extender: an annotation that is the agent's.
A refusal by a policy is what we want to hear.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import FIELD_MANAGER, Request, Send
from topology.annotations import keys

UNTIL_KNOWN_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Guard:
    """What is known about the policies, from checks now and then."""

    def __init__(self, send: Send, nodes: Iterable[str]) -> None:
        self.in_force: bool | None = None
        """`None` before anybody could tell: there is no node to try it on, or the API server has not answered."""
        self._send = send
        self._nodes = nodes

    def pause_seconds(self, known_seconds: float) -> float:
        """Return the pause before the next check; `known_seconds` once an answer has come."""
        return UNTIL_KNOWN_SECONDS if self.in_force is None else known_seconds

    async def check(self) -> None:
        """Try once, and log a change; an answer that says nothing leaves what is known."""
        node = next(iter(self._nodes), None)
        if node is None:
            return
        try:
            in_force = verdict(*await self._send(forbidden_write(node)))
        except Unavailable:
            return
        if in_force is not None and in_force != self.in_force:
            self.in_force = in_force
            if in_force:
                log.info("admission policies are in force")
            else:
                log.warning(
                    "admission policies are not in force: whoever may patch nodes or pods can forge our records"
                )


def forbidden_write(node: str) -> Request:
    """Return the write that no extender is allowed; it changes nothing even where it is."""
    body = {"metadata": {"annotations": {keys.STATUS: "may the extender write this?"}}}
    path = f"/api/v1/nodes/{quote(node, safe='')}?dryRun=All&fieldManager={FIELD_MANAGER}"
    return Request("PATCH", path, msgspec.json.encode(body), "application/merge-patch+json")


def verdict(status: int, body: bytes) -> bool | None:
    """Say what an answer to the forbidden write tells about the policies."""
    if 200 <= status < 300:
        return False
    return True if status == 403 and b"ValidatingAdmissionPolicy" in body else None
