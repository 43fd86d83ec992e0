"""The controllers of gangs: each creates a new, gated pod for every member that has failed or is leaving, after a while."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from random import Random

from benchmarks.simulated.double.resources import PODS, Object
from tests.simulation.storm import Storm
from tests.simulation.wording import annotations_of
from tests.simulation.world.scheduler import NAME as SCHEDULER
from tests.simulation.world.server import NAMESPACE, Server
from topology.annotations import keys

MOST_CREATED = 12
"""For one gang, so that runs come to an end."""


class Controller:
    """Keeps gangs whole whose pods have a controller."""

    def __init__(self, server: Server, storm: Storm, random: Random) -> None:
        self._server = server
        self._storm = storm
        self._random = random
        self._numbers = count(1)
        self._created = Counter[str]()

    async def run(self) -> None:
        """Create what is missing, for ever."""
        while self._storm.mix.owned_ratio:
            await asyncio.sleep(self._random.uniform(0.2, 2.0))
            for uid, members in self._by_controller().items():
                self._complete(uid, members)

    def _by_controller(self) -> dict[str, list[Object]]:
        gangs: dict[str, list[Object]] = {}
        for pod in self._server.pods():
            for owner in pod["metadata"].get("ownerReferences", ()):
                gangs.setdefault(owner["uid"], []).append(pod)
        return gangs

    def _complete(self, uid: str, members: list[Object]) -> None:
        size = int(annotations_of(members[0])[keys.GROUP_SIZE])
        there = [
            pod
            for pod in members
            if pod["status"].get("phase") != "Failed" and "deletionTimestamp" not in pod["metadata"]
        ]
        if len(there) >= size or self._created[uid] >= MOST_CREATED:
            return
        self._created[uid] += 1
        like = members[0]
        said = {key: annotations_of(like)[key] for key in (keys.GROUP, keys.GROUP_SIZE, keys.GANG)}
        metadata = {
            "name": f"{said[keys.GROUP]}-again{next(self._numbers)}",
            "annotations": said,
            "ownerReferences": like["metadata"]["ownerReferences"],
        }
        spec = {
            "containers": like["spec"]["containers"],
            "schedulerName": SCHEDULER,
            "schedulingGates": [{"name": keys.PLAN_GATE}],
        }
        with self._server.writing("controller") as store:
            store.create(PODS, NAMESPACE, {"metadata": metadata, "spec": spec})
