"""200 nodes on the API double, the real extender, kube-scheduler's calls, and what these cost the extender in CPU time.

How long an answer takes says as much of the machine as of the extender. So what counts is how much the extender's main thread, on
which its event loop runs, computes between a call and its answer. On an idle machine the call takes at least as long. On a busy
one it takes longer, and costs the same.

Tenants and holders of tokens may use the first nodes of each rack. On the others there are only honest pods, so these have room.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
import msgspec

from benchmarks.processes.client import ApiClient
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from benchmarks.processes.ticking import held_up_ms
from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NAMESPACES, PODS, ApiResource
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.status import StatusError
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import MIXED, SimulatedNode, gpu_pod, join
from tests.extender.polling import eventually

Json = dict[str, Any]
T = TypeVar("T")

RACKS, IN_A_RACK, FOR_TENANTS, WITH_A_TOKEN = 8, 25, 12, 2
"""200 nodes; of each rack twelve are for tenants, and somebody has the tokens of two of these."""
SHARING_EVERY = 3
"""One of so many nodes lets pods share its GPUs."""
GOOD, EVIL = "good", "evil"
SILENCE_SECONDS = 24 * 3600
"""Agents of honest nodes say nothing more, for nothing changes there."""
ANSWER_SECONDS = 300.0
"""After which a call is given up. Nothing is asserted of it: what it costs is."""


@dataclass(frozen=True, slots=True)
class Called:
    """An answer, and what its call cost."""

    status: int
    body: Any
    cpu_ms: float


def nodes(random: Random) -> Iterator[SimulatedNode]:
    """Yield the nodes; the first honest one of a rack has a pod on each of its GPUs."""
    for number in range(RACKS * IN_A_RACK):
        rack, place = divmod(number, IN_A_RACK)
        name, labels = f"r{rack}-{place:02d}", {"topology.kubernetes.io/rack": f"r{rack}"}
        machine = random.choice(MIXED)
        if place == FOR_TENANTS:
            yield SimulatedNode(name, machine, tuple(range(8)), labels=labels)
        elif place % SHARING_EVERY:
            yield SimulatedNode(name, machine, labels=labels)
        else:
            cpus, taken = random.choice((64, 96, 128, 192)), random.randrange(1, 72)
            yield SimulatedNode(name, "hgx-h100", cpus=cpus, shared_gpus=8, shared_gib=taken, labels=labels)


@dataclass
class Cluster:
    """All of it, while it runs."""

    store: ObjectStore
    extender: RunningExtender
    health_url: str
    nodes: Sequence[SimulatedNode]
    session: aiohttp.ClientSession
    ticks: Path
    _ticks_read: int = 0
    _markers: int = 0
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [node.name for node in self.nodes]

    @property
    def of_tenants(self) -> list[str]:
        """The nodes that tenants' pods may go to."""
        return [name for name in self.names if int(name.split("-")[1]) < FOR_TENANTS]

    @property
    def with_tokens(self) -> list[SimulatedNode]:
        """The nodes whose tokens somebody has."""
        return [node for node in self.nodes if int(node.name.split("-")[1]) < WITH_A_TOKEN]

    @property
    def honest(self) -> list[SimulatedNode]:
        """The nodes that only honest pods go to."""
        return [node for node in self.nodes if int(node.name.split("-")[1]) >= FOR_TENANTS]

    def create(self, namespace: str, pod: Json) -> Json:
        """Create a pod."""
        return self.store.create(PODS, namespace, pod)

    def patch(self, resource: ApiResource, namespace: str, name: str, patch: Json) -> None:
        """Change an object and its status, if it is there."""
        with suppress(StatusError):
            self.store.modify(resource, namespace, name, lambda old: merge_patch(old, patch))
            if "status" in patch:
                self.store.modify(
                    resource,
                    namespace,
                    name,
                    lambda old: merge_patch(old, {"status": patch["status"]}),
                    subresource="status",
                )

    def delete(self, pod: Json) -> None:
        """Delete a pod, if it is there, and what ran of it."""
        metadata = pod["metadata"]
        with suppress(StatusError):
            self.store.delete(PODS, metadata["namespace"], metadata["name"], grace_period_seconds=0)

    def end(self, pod: Json) -> None:
        """Let a pod's containers end well; then its GPUs are free, without a report of an agent."""
        metadata, ended = pod["metadata"], {"terminated": {"exitCode": 0}}
        containers = [{"name": container["name"], "state": ended} for container in pod["spec"]["containers"]]
        status = {"phase": "Succeeded", "containerStatuses": containers}
        self.patch(PODS, metadata["namespace"], metadata["name"], {"status": status})
        self.delete(pod)

    async def ask(self, verb: str, pod: Json, names: Sequence[str]) -> Called:
        """Call filter or prioritize for a pod."""
        return await self._post(verb, {"Pod": pod, "NodeNames": names})

    async def bind(self, pod: Json, node: str) -> str:
        """Call bind, and return the error, which is empty when the pod is bound."""
        metadata = pod["metadata"]
        body = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        answer = await self._post("bind", {**body, "Node": node})
        return str(answer.body.get("Error") or "") if answer.status == 200 else f"{answer.status} {answer.body}"

    async def passing(self, pod: Json, names: Sequence[str]) -> list[str]:
        """Return the nodes that filter passes."""
        answer = await self.ask("filter", pod, names)
        return list(answer.body.get("NodeNames") or []) if answer.status == 200 else []

    async def get(self, path: str, *, health: bool = False) -> Called:
        """Read a page."""
        url = self.health_url if health else self.extender.url
        return await self._measured(lambda: self.session.get(url + path), decode=False)

    async def caught_up(self) -> None:
        """Wait until the extender has heard of all pods so far: they come in order."""
        self._markers += 1
        name, unreadable = f"marker-{self._markers}", {"gputopo.dev/marker": "x"}
        marker = self.create(GOOD, gpu_pod(name, 1, unreadable))

        async def is_known() -> bool:
            return (await self.get(f"/v1/inspect/pods/{GOOD}/{name}")).status == 200

        await eventually(is_known, ANSWER_SECONDS)
        self.delete(marker)

    def held_up_ms(self) -> float:
        """Return the longest time for which the event loop let nobody have a turn, since the last call of this."""
        with self.ticks.open() as file:
            file.seek(self._ticks_read)
            whole, newline, _ = file.read().rpartition("\n")
        self._ticks_read += len(whole) + len(newline)
        return max(map(held_up_ms, whole.splitlines()), default=0.0)

    async def _post(self, verb: str, body: Json) -> Called:
        url, data = f"{self.extender.url}/v1/extender/{verb}", msgspec.json.encode(body)
        return await self._measured(lambda: self.session.post(url, data=data), decode=True)

    async def _measured(self, request: Callable[[], Any], *, decode: bool) -> Called:
        before = self.extender.process.main_thread_cpu_ms()
        async with request() as answer:
            content = await answer.read()
        cpu_ms = self.extender.process.main_thread_cpu_ms() - before
        return Called(answer.status, msgspec.json.decode(content) if decode else content, cpu_ms)


@asynccontextmanager
async def running(folder: Path, random: Random) -> AsyncIterator[Cluster]:
    """Run a cluster whose extender knows its nodes and has learnt what they are worth."""
    health, ticks = free_port(), folder / "ticks"
    settings = {
        "health": {"host": "127.0.0.1", "port": health},
        "scheduling": {"appraiseAfter": "1s"},
        "agents": {"silence": f"{SILENCE_SECONDS}s"},
    }
    store, made = ObjectStore(history_limit=20_000), list(nodes(random))
    async with (
        ApiServer(store) as server,
        ApiClient(server.url) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)) as session,
    ):
        write_kubeconfig(folder / "kubeconfig", server.url)
        for namespace in (GOOD, EVIL):
            store.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        await join(api, made)
        async with running_extender(folder / "kubeconfig", folder, settings, ticks=ticks) as extender:
            cluster = Cluster(store, extender, f"http://127.0.0.1:{health}", made, session, ticks)
            await cluster.caught_up()
            yield cluster
