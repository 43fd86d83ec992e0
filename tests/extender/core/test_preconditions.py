"""An API server that ignores a Binding's preconditions is found out before anything is bound through it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from benchmarks.simulated.double import rules
from benchmarks.simulated.double.api import HttpRequest, Reply, answer
from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.objects.gpu_pods import GpuPod, read_gpu_pod
from extender.cluster.objects.kinds import Pod
from extender.core.preconditions import Preconditions, trials, verdict
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.builders import pod
from tests.extender.polling import eventually
from tests.extender.serving import serving
from tests.extender.world import World

REFUSAL = b'Operation cannot be fulfilled on pods "p": StorageError: ... Precondition failed: UID in precondition: ...'
ASSIGNED = b'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'


class Server:
    """The double, asked as `KubeApi.send` asks the real one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.away = False
        self.asked: list[Request] = []

    async def send(self, request: Request) -> tuple[int, bytes]:
        if self.away:
            raise Unavailable("nobody there")
        self.asked.append(request)
        url = urlsplit(request.path)
        query, kind, body = dict(parse_qsl(url.query)), request.content_type, request.body or b""
        reply = answer(self.world.store, HttpRequest(request.method, url.path, query, kind, body))
        assert isinstance(reply, Reply)
        return reply.code, msgspec.json.encode(reply.body)


def known(world: World, *names: str) -> list[GpuPod]:
    found = [read_gpu_pod(msgspec.convert(world.find(name), Pod)) for name in names]
    return [pod for pod in found if pod is not None]


def ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the double pass over preconditions, as real servers have done."""
    monkeypatch.setattr(rules, "check_preconditions", lambda *_: None)


@pytest.mark.parametrize(
    ("status", "body", "honoured"),
    [
        (409, REFUSAL, True),
        (409, b"pod p is being deleted, cannot be assigned to a host", None),
        (409, ASSIGNED, None),
        (201, b"{}", False),
        (403, b"forbidden", None),
        (500, REFUSAL, None),
    ],
)
def test_only_a_failed_precondition_proves_it(status: int, body: bytes, *, honoured: bool | None) -> None:
    """One that is bound, gated or being deleted is refused in any case, so the words count."""
    assert verdict(status, body) is honoured


def test_trials_are_dry_runs_to_a_node_that_does_not_exist() -> None:
    """Not even a server that takes them for real can do harm with them."""
    for request in trials(pod("p").metadata):
        assert "dryRun=All" in request.path
        assert b"gputopo-no-such-node" in (request.body or b"")


@pytest.mark.parametrize("bound", [True, False])
async def test_a_server_that_honours_them_is_believed(*, bound: bool) -> None:
    """Whatever kind of pod there is to try it on; nothing is changed by trying."""
    world = World()
    world.add_pod("p")
    if bound:
        world.store.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "n1"}})
    version = world.store.resource_version
    probe = Preconditions(Server(world).send, known(world, "p"))
    await probe.check()
    assert (probe.honoured, world.store.resource_version) == (True, version)


async def test_a_server_that_ignores_them_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run succeeds, which no Binding with a stranger's UID may."""
    world = World()
    world.add_pod("p")
    ignored(monkeypatch)
    probe = Preconditions(Server(world).send, known(world, "p"))
    await probe.check()
    assert (probe.honoured, (world.find("p") or {})["spec"].get("nodeName")) == (False, None)


async def test_a_pod_that_nobody_could_bind_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gated pods are refused by a server that has not looked at a precondition."""
    world = World()
    world.add_gated_pod("p", "kueue")
    ignored(monkeypatch)
    probe = Preconditions(Server(world).send, known(world, "p"))
    await probe.check()
    assert probe.honoured is None


async def test_bound_pods_are_preferred() -> None:
    """Nothing could bind them once more."""
    world = World()
    for name in ("a", "b"):
        world.add_pod(name)
    world.store.bind("default", "b", {"metadata": {"name": "b"}, "target": {"name": "n1"}})
    server = Server(world)
    await Preconditions(server.send, known(world, "a", "b")).check()
    assert {"/pods/b/" in request.path for request in server.asked} == {True}


async def test_without_gpu_pods_any_pod_will_do_and_without_pods_nothing_is_known() -> None:
    """In a real cluster there is always one: ours."""
    world = World()
    server = Server(world)
    probe = Preconditions(server.send, [])
    await probe.check()
    assert probe.honoured is None
    world.add_pod("web", 0)
    await probe.check()
    assert probe.honoured is True


async def test_an_outage_says_nothing() -> None:
    """It is tried again."""
    world = World()
    world.add_pod("p")
    server = Server(world)
    server.away = True
    probe = Preconditions(server.send, known(world, "p"))
    await probe.check()
    assert probe.honoured is None


@pytest.mark.slow
async def test_an_extender_is_not_ready_where_they_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why, and answers no verb."""
    ignored(monkeypatch)
    async with serving(tmp_path, SimulatedNode("n1", "t4-4"), ready=False) as extender:
        await extender.create("p", 1)

        async def complaint() -> str | None:
            status, text = await extender.get("/readyz")
            return text if status == 503 and "ignores the preconditions" in text else None

        assert "[-]binding-preconditions" in (await eventually(complaint, 30.0) or "")
        assert (await extender.post("bind", {}))[0] == 503


@pytest.mark.slow
async def test_an_extender_is_ready_where_they_are_honoured(tmp_path: Path) -> None:
    """Trying them takes no right that it does not have."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4", used=(0,))) as extender:
        assert "[+]binding-preconditions ok" in (await extender.get("/readyz?verbose"))[1]
