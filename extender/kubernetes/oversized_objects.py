"""What heavy and unreadable objects cost: each is counted, and now and then one is named, so that somebody can ask its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from extender.cluster.objects.kinds import ObjectMeta
from extender.kit.plain_structlog import structlog
from extender.kubernetes.documents import HEAVY_BYTES, Unread

HEAVY: Final = "heavy"
UNREAD: Final = "unread"
FATES: Final = (HEAVY, UNREAD)
TELL_SECONDS: Final = 60.0
"""Between two words about objects of one fate: whoever may create pods decides how many there are."""

log = structlog.get_logger(__name__)


class OversizedObjects:
    """The heavy and unreadable objects of one resource.

    Args:
        resource: For logs.
        told: Hears of each.

    """

    def __init__(self, resource: str, told: Callable[[str], None] = lambda fate: None) -> None:
        self._resource = resource
        self._told = told
        self._silent_until = dict.fromkeys(FATES, -TELL_SECONDS)
        self._untold = dict.fromkeys(FATES, 0)

    def weigh(self, metadata: ObjectMeta, size_bytes: int) -> None:
        """Take note of an object that was read, if it is heavy."""
        if size_bytes > HEAVY_BYTES and self._is_time(HEAVY):
            name = _named(metadata)
            log.warning(
                "a heavy object", resource=self._resource, object=name, bytes=size_bytes, more=self._more(HEAVY)
            )

    def pass_over(self, unread: Unread) -> None:
        """Take note of a version of an object that was not read."""
        if self._is_time(UNREAD):
            name, more = _named(unread.metadata), self._more(UNREAD)
            log.warning("passed over an object", resource=self._resource, object=name, why=unread.reason, more=more)

    def _is_time(self, fate: str) -> bool:
        self._told(fate)
        now = asyncio.get_running_loop().time()
        self._untold[fate] += 1
        if now < self._silent_until[fate]:
            return False
        self._silent_until[fate] = now + TELL_SECONDS
        return True

    def _more(self, fate: str) -> int:
        """Return how many others nobody was told of since the last word."""
        more, self._untold[fate] = self._untold[fate] - 1, 0
        return more


def _named(metadata: ObjectMeta) -> str:
    return "/".join(filter(None, (metadata.namespace, metadata.name)))
