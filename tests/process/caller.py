"""`python -m tests.process.caller KUBECONFIG URL PREFIX COUNT PERIOD`: asks an extender for one pod after the other.

It asks as kube-scheduler does: filter, prioritize, bind, one call after the other. A pod arrives every PERIOD seconds. What it
prints are seconds: of each pod from its first filter call until it is bound, and of each call by its verb; `create` is what the
API server took to take in the pod, and tells how busy it was. It is a program of its own, so that what else a test does is not
taken for the extender's time.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from benchmarks.processes.client import ApiClient, Json
from benchmarks.simulated.fleet import POD_SIZES
from tests.cluster.gpu_cluster import wants
from tests.cluster.objects import NODES, PODS
from tests.extender.polling import eventually

GIVE_UP_SECONDS = 30.0


class Caller:
    """One that asks one extender, with the names of nodes that pods may go to."""

    def __init__(self, session: aiohttp.ClientSession, url: str, names: Sequence[str]) -> None:
        self._session = session
        self._url = url
        self._names = names
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        """Of all calls, by verb."""

    async def place(self, pod: Json) -> float:
        """Have a pod bound, and return how many seconds that took; raises `TimeoutError`."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await eventually(lambda: self.try_once(pod), GIVE_UP_SECONDS)
        return clock() - began

    async def try_once(self, pod: Json) -> bool:
        """Whether a pod is bound, after one round of calls; whoever fails comes back, and the time counts."""
        node = await self.choose(pod)
        return node is not None and await self.bind(pod, node) == ""

    async def choose(self, pod: Json) -> str | None:
        """Return the best node, `None` where none fits."""
        found = await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": self._names})
        fitting: list[str] = found.get("NodeNames") or []
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        scores = await self.ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": fitting})
        return str(max(scores, key=lambda entry: entry["Score"])["Host"])

    async def bind(self, pod: Json, node: str) -> str:
        """Ask for a bind and return the error, which is empty when the pod is bound."""
        identity = pod["metadata"]
        body = {"PodName": identity["name"], "PodNamespace": identity["namespace"], "PodUID": identity["uid"]}
        answer = await self.ask("bind", {**body, "Node": node})
        return str(answer["Error"])

    async def ask(self, verb: str, body: Json) -> Any:
        """Call a verb; raises `aiohttp.ClientResponseError` for any status but 200."""
        clock = asyncio.get_running_loop().time
        address, began = f"{self._url}/v1/extender/{verb}", clock()
        async with self._session.post(address, data=msgspec.json.encode(body), raise_for_status=True) as answer:
            found = msgspec.json.decode(await answer.read())
        self.seconds[verb].append(clock() - began)
        return found


async def schedulable(api: ApiClient) -> list[str]:
    """Return the names of the nodes that are not cordoned."""
    nodes = (await api.call("GET", NODES)).ok()["items"]
    return [node["metadata"]["name"] for node in nodes if not node.get("spec", {}).get("unschedulable")]


async def main(kubeconfig: Path, url: str, prefix: str, count: int, period_seconds: float) -> None:
    """Let so many pods come, and print how long each of them took."""
    clock, seconds = asyncio.get_running_loop().time, list[float]()
    async with ApiClient.from_kubeconfig(kubeconfig) as api, aiohttp.ClientSession() as session:
        caller, began = Caller(session, url, await schedulable(api)), clock()
        for number, gpus in zip(range(count), cycle(POD_SIZES), strict=False):
            await asyncio.sleep(began + number * period_seconds - clock())
            arrived = clock()
            pod = (await api.call("POST", PODS, wants(f"{prefix}-{number}", gpus))).ok()
            caller.seconds["create"].append(clock() - arrived)
            seconds.append(await caller.place(pod))
    print(msgspec.json.encode({"pods": seconds, "calls": caller.seconds}).decode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
