"""Objects that say sizes of groups are followed where the API server has them and lets us; where not, nothing waits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from extender.cluster.caches.group_sizes import GroupSizes
from extender.cluster.objects.group_sizes import ROWS
from extender.config.api_server import WatchSettings
from extender.features.group_sizes.feature import NO_ANSWER, NO_RIGHT, GroupSizeWatch
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from extender.kubernetes.watching import Watching
from tests.extender.kubernetes.test_reflector import Script, Step
from tests.extender.serving import serving
from tests.extender.virtual_time import in_virtual_time
from topology.request.domains import GroupSource

JOBS = "/apis/batch/v1/jobs"
OLD, NEW = (f"/apis/scheduling.k8s.io/{version}/podgroups" for version in ("v1alpha2", "v1beta1"))
ASK_AGAIN = 60.0
SPECS = {JOBS: {"completionMode": "Indexed", "parallelism": 3}}
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}


class ApiServer:
    """Has, for each path, a status for the question whether we may, one list and one stream; other paths it has not."""

    def __init__(self, statuses: Mapping[str, int], stream: tuple[Step, ...] = (b"", 1e9)) -> None:
        self.statuses = dict(statuses)
        self.stream = stream

    async def send(self, request: Request) -> tuple[int, bytes]:
        status = self.statuses.get(request.path.partition("?")[0], 404)
        if status == 0:
            raise Unavailable("nobody there")
        return status, b""

    def resource(self, path: str, **limits: Any) -> Script:
        metadata = {"name": path.split("/")[3], "namespace": "ml", "uid": "u1", "resourceVersion": "7"}
        item = {"metadata": metadata, "spec": SPECS.get(path, GANG)}
        page = msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": [item]})
        return Script(deque([page]), deque([list(self.stream)] * 999))


class Followed:
    """What comes of one API server."""

    def __init__(self, api: ApiServer, *sources: GroupSource) -> None:
        self.sizes = GroupSizes(lambda key: None)
        watching = Watching(cast("KubeApi", api), WatchSettings())
        self.watch = GroupSizeWatch(watching, self.sizes, sources or tuple(GroupSource), ask_again_seconds=ASK_AGAIN)

    def says(self) -> tuple[bool | None, dict[str, str], list[tuple[str, str]]]:
        """Return whether sizes are read, what is not and why, and which groups' are known."""
        return self.watch.is_reading, self.watch.trouble, [(key[1], key[2]) for key in self.sizes.by_group]


@asynccontextmanager
async def following(api: ApiServer, *sources: GroupSource) -> AsyncIterator[Followed]:
    followed = Followed(api, *sources)
    running = asyncio.create_task(followed.watch.run())
    try:
        await asyncio.sleep(3.0)
        yield followed
        assert not running.done()
    finally:
        running.cancel()


@in_virtual_time
async def test_a_kind_that_the_api_server_has_not_is_no_trouble() -> None:
    """Most clusters have Jobs and nothing else; what is installed later is read."""
    api = ApiServer({JOBS: 200})
    async with following(api) as followed:
        assert followed.says() == (True, {}, [("job", "v1")])
        api.statuses["/apis/scheduling.volcano.sh/v1beta1/podgroups"] = 200
        await asyncio.sleep(ASK_AGAIN + 3)
        assert followed.says() == (True, {}, [("job", "v1"), ("volcano", "v1beta1")])


@pytest.mark.parametrize(("status", "why"), [(403, NO_RIGHT), (401, NO_RIGHT), (0, NO_ANSWER), (500, NO_ANSWER)])
def test_a_missing_right_is_told_and_asked_for_again(status: int, why: str) -> None:
    """The others are read meanwhile."""

    @in_virtual_time
    async def play() -> None:
        api = ApiServer({JOBS: status, NEW: 200})
        async with following(api) as followed:
            assert followed.says() == (False, {JOBS: why}, [("kube-scheduler", "v1beta1")])
            api.statuses[JOBS] = 200
            await asyncio.sleep(ASK_AGAIN + 3)
            assert followed.watch.is_reading is True and len(followed.sizes.by_group) == 2

    play()


@pytest.mark.parametrize(("status", "is_soon"), [(403, False), (404, False), (0, True), (500, True)])
def test_only_an_api_server_that_gives_no_answer_is_asked_again_soon(status: int, *, is_soon: bool) -> None:
    """A missing right or kind stays missing until a person changes that."""

    @in_virtual_time
    async def play() -> None:
        api = ApiServer({JOBS: status})
        async with following(api, GroupSource.JOB) as followed:
            api.statuses[JOBS] = 200
            await asyncio.sleep(ASK_AGAIN / 2)
            assert bool(followed.watch.is_reading) is is_soon

    play()


@pytest.mark.parametrize(("served", "read"), [([OLD], "v1alpha2"), ([NEW], "v1beta1"), ([OLD, NEW], "v1beta1")])
def test_of_several_versions_the_newest_is_read(served: list[str], read: str) -> None:
    """kube-scheduler's PodGroup had two."""

    @in_virtual_time
    async def play() -> None:
        async with following(ApiServer(dict.fromkeys(served, 200)), GroupSource.KUBE_SCHEDULER) as followed:
            assert followed.says() == (True, {}, [("kube-scheduler", read)])

    play()


@in_virtual_time
async def test_a_kind_that_falls_silent_is_looked_for_anew() -> None:
    """An upgrade may have taken one version away and brought another; what is known stays until then."""
    api = ApiServer({OLD: 200}, stream=(Unavailable("HTTP 404"),))
    async with following(api, GroupSource.KUBE_SCHEDULER) as followed:
        assert followed.watch.is_reading
        api.statuses, api.stream = {NEW: 200}, (b"", 1e9)
        await asyncio.sleep(100.0)
        assert followed.says() == (True, {}, [("kube-scheduler", "v1alpha2")])
        await asyncio.sleep(30.0)
        assert followed.says() == (True, {}, [("kube-scheduler", "v1beta1")])


@in_virtual_time
async def test_only_sources_that_count_are_read() -> None:
    """And where none of them has its size elsewhere nothing is asked, and nothing ends."""
    async with following(ApiServer({path: 200 for row in ROWS for path in row.paths}), GroupSource.JOB) as followed:
        assert followed.says() == (True, {}, [("job", "v1")])
    async with following(ApiServer({JOBS: 200}), GroupSource.KUEUE) as followed:
        assert followed.says() == (None, {}, [])


@pytest.mark.slow
async def test_without_the_right_an_extender_is_ready_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its metric and on its front page; it asks for nothing of the kind where nobody wants sizes."""
    really, asked = KubeApi.send, list[str]()

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if "/apis/batch/" in request.path:
            asked.append(request.path)
            return 403, b""
        return await really(api, request)

    monkeypatch.setattr(KubeApi, "send", send)
    async with serving(tmp_path) as extender:
        assert "\ngputopo_group_sizes_read " not in (await extender.get("/metrics", extender.health_url))[1]
        assert not asked
    async with serving(tmp_path, settings={"groups.readSizes": "true"}) as extender:
        assert "\ngputopo_group_sizes_read 0.0" in (await extender.get("/metrics", extender.health_url))[1]
        assert "sizes of groups are not read off all objects" in (await extender.get("/"))[1]
        assert asked
