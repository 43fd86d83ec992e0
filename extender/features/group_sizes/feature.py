"""Follows the objects that say how many pods a group has, where somebody wants that, the API server has them and lets us.

Nothing waits for them: as long as a size is not known, the pods are counted that there are. Most clusters have only some of
these kinds, and of one maybe another version after an upgrade. So we ask first, begin to watch once the answer is yes, and ask
anew when nothing is heard for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, NoReturn, Self

from extender.cluster.caches.group_sizes import GroupSizes, SizesOfKind
from extender.cluster.objects.group_sizes import ROWS, GroupMaker, Row
from extender.core.feature import Core, Feature
from extender.kit.plain_structlog import structlog
from extender.kit.rounds import Round
from extender.kubernetes.reflector import Reflector, Unavailable
from extender.kubernetes.rest import Request
from extender.kubernetes.watching import Watching
from extender.telemetry.metrics import Figures, read_gauges
from topology.request.domains import GroupSource

GROUP_SIZES: Final = read_gauges(
    {"group_sizes_read": "1 if sizes of groups are read from other objects; absent without `groups.readSizes`."}
)
NO_RIGHT: Final = "the account may not list them"
NO_ANSWER: Final = "the API server gives no answer"
_TROUBLES: Final = {401: NO_RIGHT, 403: NO_RIGHT, 404: None}
"""What an answer other than yes means; the kinds that are not there are no trouble."""
RETRY_SECONDS: Final = 1.0
"""Between two looks, and between two questions that nobody answers."""

log = structlog.get_logger(__name__)


class GroupSizeWatch(Feature):
    """What is known of sizes, kept in step with the API server where that can be."""

    name = "group-sizes"
    declarations = GROUP_SIZES

    def __init__(
        self, watching: Watching, sizes: GroupSizes, sources: Collection[GroupSource], *, ask_again_seconds: float
    ) -> None:
        """Read the kinds that say something of the groups of these sources."""
        self.trouble: dict[str, str] = {}
        """Why what the API server has under a path is not read."""
        self._watching = watching
        self._sizes = sizes
        self._rows = [row for row in ROWS if row.source in sources]
        self._ask_again_seconds = ask_again_seconds
        self._silence_seconds = 2 * watching.limits.silence
        self._heard: set[str] = set()

    @classmethod
    def of(cls, core: Core) -> Self | None:
        """Return the feature, `None` where sizes are not to be read."""
        groups = core.config.groups
        if not groups.read_sizes:
            return None
        again_seconds = core.config.policies.look
        return cls(core.watching, core.state.indexes.groups.sizes, groups.sources, ask_again_seconds=again_seconds)

    def rounds(self) -> Iterable[Round]:
        """Return the one that watches the objects."""
        return (Round(name=self.name, work=self.run, at_once=True),)

    def figures(self) -> Figures:
        """Return whether sizes are read, once that is known."""
        return {} if self.is_reading is None else {"group_sizes_read": self.is_reading}

    @property
    def is_reading(self) -> bool | None:
        """Whether all that the API server has is heard of; `None` as long as nobody has said."""
        return not self.trouble if self._heard or self.trouble else None

    async def run(self) -> None:
        """Ask, watch, and ask again, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for row in self._rows:
                group.create_task(self._follow(row))
        await asyncio.Event().wait()  # without any kind to be read this is no death either

    async def _follow(self, row: Row) -> NoReturn:
        sink = SizesOfKind(self._sizes)
        while True:
            path = await self._find(row)
            await self._listen(path, self._watching.reflector(path, row.kind, sink))

    async def _find(self, row: Row) -> str:
        """Ask until one of the paths can be listed; an answer that says nothing is asked for again soon."""
        while True:
            statuses = {path: await self._ask(path) for path in row.paths}
            served = next((path for path, status in statuses.items() if status == 200), None)
            for path in statuses.keys() - {served}:
                self._tell(path, None if served else _TROUBLES.get(statuses[path], NO_ANSWER))
            if served:
                return served
            is_settled = _TROUBLES.keys() >= set(statuses.values())
            await asyncio.sleep(self._ask_again_seconds if is_settled else RETRY_SECONDS)

    async def _ask(self, path: str) -> int:
        try:
            return (await self._watching.api.send(Request("GET", f"{path}?limit=1")))[0]
        except Unavailable:
            return 0

    async def _listen(self, path: str, reflector: Reflector[GroupMaker]) -> None:
        """Watch until nothing has been heard for too long."""
        clock = asyncio.get_running_loop()
        watching, since = asyncio.create_task(reflector.run()), clock.time()
        try:
            while clock.time() - max(reflector.heard_at, since) < self._silence_seconds:
                if reflector.synced.is_set():
                    self._heard.add(path)
                    self._tell(path, None)
                await asyncio.wait([watching], timeout=RETRY_SECONDS)
                if watching.done():
                    watching.result()
        finally:
            watching.cancel()
            self._heard.discard(path)
        self._tell(path, reflector.trouble or "silent")

    def _tell(self, path: str, trouble: str | None) -> None:
        if trouble is None:
            self.trouble.pop(path, None)
        elif self.trouble.get(path) != trouble:
            self.trouble[path] = trouble
            log.warning("sizes of groups are not read", path=path, why=trouble)
