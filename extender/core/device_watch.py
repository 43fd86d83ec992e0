"""Follows ResourceClaims and ResourceSlices where the API server has them and lets us; where not, nothing rests on them.

Both are optional. Kubernetes before 1.34 has no `resource.k8s.io/v1`, and most clusters have no DRA driver. The right to
read them comes with kube-scheduler's account, or with an option of the chart. So we ask first, and begin to watch once
the answer is yes. The verbs wait for the first lists, and never for longer than `PATIENCE_SECONDS`; later only nodes with
such devices are closed while nothing is heard.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from extender.cluster.caches.resource_claims import NO_RIGHT, ResourceClaims
from extender.cluster.objects.devices import CLAIMS_PATH, SLICES_PATH, SLICES_SELECTOR, ResourceClaim, ResourceSlice
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from extender.kubernetes.watching import Watching

PATIENCE_SECONDS: Final = 10.0
"""For the first lists, where the API server neither gives nor refuses them."""
RETRY_SECONDS: Final = 1.0
"""Between two questions that nobody answers."""

log = structlog.get_logger(__name__)


class DeviceWatch:
    """What is known of DRA's devices, kept in step with the API server where that can be."""

    def __init__(self, watching: Watching, claims: ResourceClaims, *, ask_again_seconds: float) -> None:
        self.is_watching: bool | None = None
        """Whether claims are heard of; `None` where there are none, or nobody has said yet."""
        self._send = watching.api.send
        self._claims = claims
        self._ask_again_seconds = ask_again_seconds
        self._silence_seconds = 2 * watching.limits.silence
        self._has_settled = asyncio.Event()
        self._slices = watching.reflector(SLICES_PATH, ResourceSlice, claims.slices, field_selector=SLICES_SELECTOR)
        self._held = watching.reflector(CLAIMS_PATH, ResourceClaim, claims, keep=claims.keep)

    @property
    def has_settled(self) -> bool:
        """Whether the first lists have come, or will not be waited for any more."""
        return self._has_settled.is_set()

    async def run(self) -> NoReturn:
        """Ask, then watch, until cancelled."""
        asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._has_settled.set)
        await self._wait_for_leave()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._slices.run())
            group.create_task(self._held.run())
            await asyncio.wait([group.create_task(self._listed())], timeout=PATIENCE_SECONDS)
            while True:
                self._hear()
                await asyncio.sleep(RETRY_SECONDS)

    async def _listed(self) -> None:
        await asyncio.gather(self._slices.synced.wait(), self._held.synced.wait())

    async def _wait_for_leave(self) -> None:
        while True:
            if await self._may_watch():
                return
            await asyncio.sleep(self._ask_again_seconds if self.has_settled else RETRY_SECONDS)

    async def _may_watch(self) -> bool:
        """Ask whether both can be listed; an answer that says nothing leaves what is known."""
        statuses = [await self._ask(path) for path in (SLICES_PATH, CLAIMS_PATH)]
        if any(status in (401, 403) for status in statuses):
            self._settle(watching=False, trouble=NO_RIGHT)
        elif any(status == 404 for status in statuses):
            self._settle(watching=None, trouble=None)
        return all(status == 200 for status in statuses)

    async def _ask(self, path: str) -> int:
        try:
            return (await self._send(Request("GET", f"{path}?limit=1")))[0]
        except Unavailable:
            return 0

    def _hear(self) -> None:
        """Tell whether both have been heard of lately."""
        now = asyncio.get_running_loop().time()
        since = now - self._silence_seconds
        silent = [
            reflector
            for reflector in (self._slices, self._held)
            if not reflector.synced.is_set() or reflector.heard_at < since
        ]
        trouble = f"{silent[0].name}: {silent[0].trouble or 'silent'}" if silent else None
        self._settle(watching=not silent, trouble=trouble)

    def _settle(self, *, watching: bool | None, trouble: str | None) -> None:
        if trouble and trouble != self._claims.trouble:
            log.warning("ResourceClaims are not read", why=trouble)
        elif watching and not self.is_watching:
            log.info("ResourceClaims are watched")
        self.is_watching, self._claims.trouble = watching, trouble
        self._claims.hear(bool(watching))
        self._has_settled.set()
