"""INV6 by request and by change: both let pass what the product asks for, and both see what it must not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from benchmarks.simulated.double.api import HttpRequest as Sent
from benchmarks.simulated.double.api import Reply, answer
from benchmarks.simulated.double.resources import NODES, PODS
from benchmarks.simulated.double.store import StoreChange
from extender.binding.intents import AskForLook, BindPod, FencePod, Single, SwapLedger, WritePlacement
from extender.cluster.objects.kinds import Pod
from extender.kubernetes.rest import Request, pointer, to_request
from tests.extender.world import World
from tests.process import calls
from tests.simulation.invariants.writes import foreign_writes
from tests.world import writes
from topology.annotations import keys
from topology.annotations.records import Ledger, PlacementRecord, encode_ledger, encode_placement

NEW = encode_ledger(Ledger(2))
PLACEMENT = encode_placement(PlacementRecord({}))
NODE, POD = "/api/v1/nodes/n1", "/api/v1/namespaces/default/pods/p"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


@pytest.fixture
def world() -> World:
    """Return a node with a ledger, and a pod."""
    world = World()
    world.add_pod("p")
    return world


def swap(world: World, *, anew: bool) -> Single:
    (node,) = world.store.list(NODES).items
    metadata = node["metadata"]
    old = None if anew else metadata["annotations"][keys.LEDGER]
    return SwapLedger("n1", metadata["uid"], None, old, NEW, metadata["resourceVersion"])


def ask(world: World) -> Single:
    (node,) = world.store.list(NODES).items
    return AskForLook("n1", node["metadata"]["uid"], "7")


def about_the_pod(make: Callable[..., Single], *more: object) -> Callable[[World], Single]:
    def intent(world: World) -> Single:
        (pod,) = world.store.list(PODS).items
        return make("default", "p", pod["metadata"]["uid"], pod["metadata"]["resourceVersion"], *more)

    return intent


def done(world: World, request: Request) -> StoreChange:
    """Have the API do it, and return what has changed."""
    before, url = world.store.resource_version, urlsplit(request.path)
    query = dict(parse_qsl(url.query))
    reply = answer(world.store, Sent(request.method, url.path, query, request.content_type, request.body or b""))
    assert isinstance(reply, Reply)
    assert reply.code < 300, reply.body
    (change,) = world.store.changes_since(before)
    return change


def by_request(request: Request) -> list[str]:
    url = urlsplit(request.path)
    call = calls.Call(request.method, url.path, dict(parse_qsl(url.query)), {}, request.body or b"", 0.0)
    return list(calls.foreign_writes(call))


PROTOCOL: dict[str, Callable[[World], Single]] = {
    "swap": partial(swap, anew=False),
    "write anew": partial(swap, anew=True),
    "ask": ask,
    "bind": about_the_pod(BindPod, "n1", {keys.PLACEMENT: PLACEMENT}),
    "fence": about_the_pod(FencePod, "1", Pod()),
    "correct": about_the_pod(WritePlacement, PLACEMENT),
}


@pytest.mark.parametrize("intent", PROTOCOL.values(), ids=PROTOCOL)
def test_what_the_protocol_writes_is_its_own(world: World, intent: Callable[[World], Single]) -> None:
    """Of the product's requests, and of what the API server makes of them, there is nothing to complain about."""
    request = to_request(intent(world))
    assert by_request(request) == []
    assert foreign_writes("extender-0", done(world, request)) == []


def test_events_may_be_made_and_nothing_else_done_to_them(world: World) -> None:
    """They tell people what happened, and are no part of the protocol."""
    body = msgspec.json.encode({"metadata": {"name": "e"}, "reason": "Why"})
    event = Request("POST", "/api/v1/namespaces/default/events", body)
    assert by_request(event) == []
    assert foreign_writes("extender-0", done(world, event)) == []
    forget = Request("DELETE", "/api/v1/namespaces/default/events/e", b"{}")
    assert by_request(forget)
    assert foreign_writes("extender-0", done(world, forget)) == [writes.DELETED]


def patch(path: str, annotations: Mapping[str, str]) -> Request:
    return Request("PATCH", path, msgspec.json.encode({"metadata": {"annotations": annotations}}), MERGE)


TWO_KEYS = [{"op": "add", "path": pointer(key), "value": NEW} for key in (keys.LEDGER, keys.STATUS)]
BINDING = {"metadata": {"name": "p", "annotations": {"example.com/a": "b"}}, "target": {"kind": "Node", "name": "n1"}}
FOREIGN = {
    "the agent's key": patch(NODE, {keys.STATUS: "{}"}),
    "the agent's key beside the ledger": Request("PATCH", NODE, msgspec.json.encode(TWO_KEYS), JSON_PATCH),
    "two writes in one, of a node": patch(NODE, {keys.LEDGER: NEW, keys.LOOK: "7"}),
    "two writes in one, of a pod": patch(f"{POD}/status", {keys.PLACEMENT: PLACEMENT, keys.FENCE: "1"}),
    "a pod's key on a node": patch(f"{NODE}/status", {keys.FENCE: "1"}),
    "a label": Request("PATCH", NODE, b'{"metadata":{"labels":{"a":"b"}}}', MERGE),
    "a status": Request("PATCH", f"{POD}/status", b'{"status":{"phase":"Failed"}}', MERGE),
    "more than the record with the Binding": Request("POST", f"{POD}/binding", msgspec.json.encode(BINDING)),
    "a new object": Request("POST", "/api/v1/nodes", b'{"metadata":{"name":"n2"}}'),
    "a deletion": Request("DELETE", NODE, b"{}"),
}


@pytest.mark.parametrize("sent", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_write_is_seen_by_request_and_by_change(world: World, sent: Request) -> None:
    """Who sees only what became of an object complains of as much as who has read the request."""
    assert by_request(sent)
    with world.unchecked():
        assert foreign_writes("extender-0", done(world, sent))


def test_agents_write_what_they_report_and_nothing_else(world: World) -> None:
    """A ledger that an agent has written is foreign, and so is all that a node has beside annotations; of others nobody asks."""
    report = done(
        world, patch(NODE, {keys.STATUS: "{}", keys.OBSERVED: "{}", keys.TOPOLOGY: "{}", keys.TOPOLOGY_DIGEST: "x"})
    )
    assert foreign_writes("agent-n1", report) == []
    ledger = done(world, patch(NODE, {keys.LEDGER: NEW}))
    assert foreign_writes("agent-n1", ledger) == [writes.annotation(keys.LEDGER)]
    assert foreign_writes("agent-n1", done(world, FOREIGN["a label"])) == ["metadata.labels"]
    assert foreign_writes("admin", ledger) == []
