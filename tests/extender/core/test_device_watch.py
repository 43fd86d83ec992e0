"""ResourceClaims are followed where the API server has them and lets us; where not, nothing waits for them and nothing closes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.caches.resource_claims import NO_RIGHT, ResourceClaims
from extender.cluster.objects.devices import CLAIMS_PATH, SLICES_PATH
from extender.config.api_server import WatchSettings
from extender.core.device_watch import PATIENCE_SECONDS, DeviceWatch
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from extender.kubernetes.watching import Watching
from tests.dra import Json, allocated, gpu, resource_slice, waiting
from tests.extender.kubernetes.test_reflector import Script, Step, line
from tests.extender.polling import eventually
from tests.extender.serving import serving
from tests.extender.virtual_time import in_virtual_time

PUBLISHED = resource_slice("n1", [gpu(0, "GPU-0")])
HELD = allocated("job", "n1", "gpu-0")
ASK_AGAIN = 60.0
NO_ANSWER = 0


def page(*items: Json) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": items})


class ApiServer:
    """Answers the question whether we may with a status, and has one page and one stream for each resource."""

    def __init__(
        self, *statuses: int, claims: Sequence[Step] = (b"", 1e9), lists: Sequence[bytes | Exception] = ()
    ) -> None:
        self.statuses = deque(statuses)
        self.asked: list[str] = []
        self.sources = {
            SLICES_PATH: Script(deque([page(PUBLISHED)]), deque([[b"", 1e9]])),
            CLAIMS_PATH: Script(deque(lists or [page(HELD)]), deque([list(claims)])),
        }

    async def send(self, request: Request) -> tuple[int, bytes]:
        self.asked.append(request.path)
        status = self.statuses.popleft() if len(self.statuses) > 1 else self.statuses[0]
        if status == NO_ANSWER:
            raise Unavailable("nobody there")
        return status, b""

    def resource(self, path: str, **limits: Any) -> Script:
        return self.sources[path]


class Followed:
    """What comes of one API server."""

    def __init__(self, api: ApiServer) -> None:
        self.claims = ResourceClaims(lambda node: None)
        watching = Watching(cast("KubeApi", api), WatchSettings())
        self.watch = DeviceWatch(watching, self.claims, ask_again_seconds=ASK_AGAIN)

    def has_settled(self) -> bool:
        return self.watch.has_settled

    def says(self) -> tuple[bool | None, str | None]:
        """Return whether claims are heard of, and why not."""
        return self.watch.is_watching, self.claims.trouble


@asynccontextmanager
async def following(api: ApiServer) -> AsyncIterator[Followed]:
    followed = Followed(api)
    running = asyncio.create_task(followed.watch.run())
    try:
        yield followed
    finally:
        running.cancel()


@in_virtual_time
async def test_the_verbs_wait_for_the_first_lists() -> None:
    """Else a GPU that a claim holds would look free for a moment."""
    async with following(ApiServer(200)) as followed:
        assert not followed.has_settled()
        await asyncio.sleep(0.1)
        assert (followed.has_settled(), followed.says()) == (True, (True, None))
        assert followed.claims.on("n1").held == {"GPU-0": ("ml/job",)}


@in_virtual_time
async def test_what_changes_is_heard() -> None:
    """A claim that is deallocated holds nothing any more, though it is still there."""
    gone = line("MODIFIED", waiting("job"))
    async with following(ApiServer(200, claims=[b"", 5.0, gone, 1e9])) as followed:
        await asyncio.sleep(1.0)
        assert followed.claims.on("n1").held
        await asyncio.sleep(10.0)
        assert not followed.claims.on("n1").held


@pytest.mark.parametrize(("status", "watching", "trouble"), [(404, None, None), (403, False, NO_RIGHT)])
def test_without_the_api_or_the_right_nobody_waits(status: int, watching: bool | None, trouble: str | None) -> None:
    """A cluster without DRA has nothing to say of it; a missing right is told. Both are asked for again."""

    @in_virtual_time
    async def play() -> None:
        api = ApiServer(status)
        async with following(api) as followed:
            await asyncio.sleep(0.1)
            assert followed.has_settled()
            assert followed.says() == (watching, trouble)
            api.statuses[0] = 200
            await asyncio.sleep(ASK_AGAIN)
            assert followed.says() == (True, None)

    play()


@in_virtual_time
async def test_an_api_server_that_says_nothing_is_waited_for_ten_seconds() -> None:
    """Then the verbs are answered, and what it has is taken in when it comes."""
    api = ApiServer(NO_ANSWER)
    async with following(api) as followed:
        await asyncio.sleep(PATIENCE_SECONDS - 0.5)
        assert not followed.has_settled()
        await asyncio.sleep(1.0)
        assert (followed.has_settled(), followed.says()) == (True, (None, None))
        api.statuses[0] = 200
        await asyncio.sleep(ASK_AGAIN)
        assert followed.watch.is_watching


@in_virtual_time
async def test_lists_that_do_not_come_are_told_and_close_nodes_with_devices() -> None:
    """The slices are known, and what claims hold of them is not."""
    async with following(ApiServer(200, lists=[Unavailable("HTTP 500")] * 99)) as followed:
        await asyncio.sleep(PATIENCE_SECONDS + 2)
        assert followed.has_settled()
        assert followed.claims.trouble == "resourceclaims: HTTP 500"
        assert followed.claims.on("n1").is_unheard


@in_virtual_time
async def test_a_watch_that_falls_silent_is_told_and_what_is_known_stays() -> None:
    """The others go on; twice the silence after which a stream is dead is waited."""
    api = ApiServer(200, claims=[b"", Unavailable("HTTP 503")])
    api.sources[CLAIMS_PATH].streams.extend([[Unavailable("HTTP 503")]] * 999)
    async with following(api) as followed:
        await asyncio.sleep(60.0)
        assert followed.says() == (True, None)
        await asyncio.sleep(60.0)
        assert followed.says() == (False, "resourceclaims: HTTP 503")
        assert followed.claims.on("n1").held == {"GPU-0": ("ml/job",)}
        assert followed.has_settled()


@pytest.mark.slow
async def test_no_verb_is_answered_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler tries again; who asks for readiness is told what is waited for."""
    really, silent = KubeApi.send, True

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if silent and "resource.k8s.io" in request.path:
            raise Unavailable("nobody there")
        return await really(api, request)

    monkeypatch.setattr(KubeApi, "send", send)
    async with serving(tmp_path, SimulatedNode("n1", "t4-4"), ready=False) as extender:
        waits = "[-]resourceclaims failed: ResourceClaims have not been listed yet"

        async def is_told() -> bool:
            page = (await extender.get("/readyz"))[1]
            return waits in page and "nodes-watch ok" in page

        assert await eventually(is_told)
        pod = await extender.create("train", 1)
        assert (await extender.post("filter", {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]}))[0] == 503
        silent = False
        assert await eventually(extender.is_ready)


@pytest.mark.slow
async def test_a_cluster_without_dra_is_served_at_once(tmp_path: Path) -> None:
    """The double has no resource.k8s.io, as Kubernetes had none before 1.34."""
    async with serving(tmp_path) as extender:
        assert "[+]resourceclaims ok" in (await extender.get("/readyz?verbose"))[1]
        assert "\ngputopo_resource_claims_watched " not in (await extender.get("/metrics", extender.health_url))[1]
