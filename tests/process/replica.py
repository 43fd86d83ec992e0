"""One `gputopo-extender` as a real process, behind a `Proxy` of its own: asked, killed, frozen, started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from benchmarks.processes.client import Json
from tests.cluster.extender_process import ExtenderProcess, figure
from tests.extender.polling import until
from tests.process.backends import Backend
from tests.process.proxy import Proxy

HTTP_TIMEOUT_SECONDS = 60.0
"""Longer than kube-scheduler waits: whoever asserts how soon an answer comes measures it, on a machine that may be busy."""
BRISK: Mapping[str, Any] = {
    "watch": {"stream": "20s", "silence": "25s", "backoff": "50ms", "maxBackoff": "500ms"},
    "reconcile": {"interval": "100ms", "orphanAfter": "2s"},
}
"""The times of the configuration, shortened; what they are by default is no matter of safety."""


def revoking_after(duration: str) -> dict[str, Any]:
    """Return the settings of a replica that takes the claim of a pod that nobody binds back after so long."""
    return {"reconcile": {**BRISK["reconcile"], "orphanAfter": duration}}


class Replica:
    """One extender; `proxy` is the only way to the API server that it knows."""

    def __init__(self, name: str, proxy: Proxy, folder: Path, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.proxy = proxy
        self._kubeconfig = folder / f"{name}.kubeconfig"
        self.process = ExtenderProcess(name, proxy.write_kubeconfig(self._kubeconfig), folder, settings)
        self.in_service = False
        """Whether a Service would send calls here: from readiness until somebody ends it."""
        self.starts: list[float] = []
        """Seconds from each start to readiness."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HTTP_TIMEOUT_SECONDS))

    @classmethod
    @asynccontextmanager
    async def behind_a_proxy(
        cls, name: str, backend: Backend, folder: Path, settings: Mapping[str, Any] | None = None
    ) -> AsyncIterator[Replica]:
        """Give a replica that is not started yet; `settings` replace sections of the configuration."""
        async with Proxy(backend.extender) as proxy:
            replica = cls(name, proxy, folder, {**BRISK, **(settings or {})})
            try:
                yield replica
            finally:
                replica.process.kill()
                await replica._session.close()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process.is_running

    async def run(self, *, ready: bool = True) -> None:
        """Start it, and return when it knows the cluster."""
        began = asyncio.get_running_loop().time()
        self.process.start()
        if ready:
            await self.wait_ready()
            self.in_service = True
            self.starts.append(asyncio.get_running_loop().time() - began)

    async def wait_ready(self) -> None:
        """Return when it says that it is ready; raises `StartFailed`."""
        await asyncio.to_thread(self.process.wait_ready)

    async def is_ready(self) -> bool:
        """Whether it answers, and says so."""
        return (await self.look("/readyz"))[0] == 200

    async def kill(self) -> None:
        """SIGKILL; its connections break with it."""
        self.in_service = False
        self.process.kill()
        for stream in tuple(self.proxy.streams):
            stream.cut()

    async def freeze(self) -> None:
        """SIGSTOP, and wait until it has stopped."""
        self.process.freeze()
        await until(lambda: self.process.is_frozen)

    async def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self.in_service = False
        await asyncio.sleep(0.2)  # who has chosen it just now is heard, as where a Service takes it away before it ends
        await asyncio.to_thread(self.process.stop)

    async def post(self, verb: str, body: Json) -> tuple[int, Any]:
        """Call a verb as kube-scheduler does; raises `aiohttp.ClientError` or `TimeoutError`."""
        url = f"{self.process.url}/v1/extender/{verb}"
        async with self._session.post(url, data=msgspec.json.encode(body)) as response:
            return response.status, msgspec.json.decode(await response.read())

    async def bind(self, pod: Json, node: str) -> str | None:
        """Bind a pod; returns the error in words, empty when it is bound, `None` without an answer."""
        identity = pod["metadata"]
        body = {"PodName": identity["name"], "PodNamespace": identity["namespace"], "PodUID": identity["uid"]}
        try:
            status, answer = await self.post("bind", {**body, "Node": node})
        except (aiohttp.ClientError, TimeoutError):
            return None
        return str(answer["Error"]) if status == 200 else f"HTTP {status}: {answer}"

    async def binds(self, pod: Json, node: str) -> bool:
        """Whether it says that the pod is bound now."""
        return await self.bind(pod, node) == ""

    async def fits(self, pod: Json, node: str) -> bool:
        """Whether filter lets the pod go to the node."""
        status, answer = await self.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": [node]})
        return status == 200 and answer.get("NodeNames") == [node]

    async def look(self, path: str) -> tuple[int, str]:
        """Read a page; the status is 0 when nobody answers."""
        try:
            async with self._session.get(self.process.url + path) as response:
                return response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def says(self, path: str, words: str) -> bool:
        """Whether a page has these words."""
        return words in (await self.look(path))[1]

    def write_token(self, token: str) -> None:
        """Give it another token to show, as a rotation would."""
        config = yaml.safe_load(self._kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self._kubeconfig.write_text(yaml.safe_dump(config))

    async def gauge(self, name: str) -> float:
        """Return one figure of /metrics; -1 when there is none."""
        found = figure((await self.look("/metrics"))[1], name)
        return -1.0 if found is None else found

    async def node(self, name: str) -> Json:
        """Return what it knows of a node; empty when it knows none."""
        status, text = await self.look(f"/v1/inspect/nodes/{name}")
        return msgspec.json.decode(text.encode(), type=dict[str, Any]) if status == 200 else {}

    async def pods(self) -> dict[str, str]:
        """Return the pods that it knows, UID → phase."""
        found, query = dict[str, str](), "limit=200"
        while query:
            page = msgspec.json.decode((await self.look(f"/v1/inspect/pods?{query}"))[1])
            found |= {pod["uid"]: pod["phase"] for pod in page["pods"]}
            query = f"limit=200&after={page['next']}" if page["next"] else ""
        return found

    async def knows(self, node: str) -> bool:
        """Whether it has heard of a node."""
        return bool(await self.node(node))

    async def counts(self, gauge: str, number: float) -> bool:
        """Whether one of its figures is this."""
        return await self.gauge(gauge) == number

    async def sees_free(self, node: str, gpus: int) -> bool:
        """Whether it takes so many GPUs of a node for free."""
        return bool((await self.node(node)).get("free") == gpus)

    def promises(self) -> list[Json]:
        """Return the binds that it said went well, over all starts, as far as its log can tell."""
        return [call for call in self.process.said("bind") if call["verdict"] == "bound" and "gpus" in call]
