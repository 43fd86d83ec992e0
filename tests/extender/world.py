"""One API server in memory, and any number of extenders that drive the protocol against it, write by write.

After every write the invariants are checked: no GPU belongs to two live pods, and each live pod that we bound has exactly its
claims in the ledger of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import count
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from benchmarks.simulated.double.api import HttpRequest, answer
from benchmarks.simulated.double.api import Reply as HttpReply
from benchmarks.simulated.double.patch import merge_patch
from benchmarks.simulated.double.resources import NODES, PODS, ApiResource, Object
from benchmarks.simulated.double.selectors import everything
from benchmarks.simulated.double.store import ObjectStore, Watch
from extender.binding.bind import bind
from extender.binding.intents import Done, Intent, ListPods, NoAnswer, Reply
from extender.binding.outcome import BindTarget, Outcome
from extender.binding.release import ClaimTimers, release
from extender.binding.repair import Repairs, repair
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.kubernetes.rest import to_reply, to_request
from tests.extender.builders import topology_of
from tests.world.faults import Fault
from tests.world.http_faults import FATES, Ending, RequestFault
from tests.world.invariants import violations_on_the_way
from topology.annotations import keys
from topology.annotations.codec import digest
from topology.annotations.records import (
    Ledger,
    Observed,
    decode_ledger,
    decode_placement,
    encode_ledger,
    encode_observed,
)
from topology.annotations.status_codec import encode_status
from topology.node.status import GpuStatus, NodeGpuStatus

T = TypeVar("T")
DEADLINE = 1e9
_ledger = lru_cache(1024)(decode_ledger)
"""Tests look at ledgers after every write, and a write changes one of them."""


class World:
    """The API server, with nodes of two GPUs and an empty ledger unless said otherwise."""

    def __init__(
        self, *nodes: str, machine_name: str = "rtx-3090-2", ledgers: bool = True, kinds: Sequence[ApiResource] = ()
    ) -> None:
        uids = count(1)
        self.store = ObjectStore(new_uid=lambda: f"uid-{next(uids)}", kinds=kinds)
        self.machine_name = machine_name
        self.ledgers = ledgers
        self.looks = 0
        """Of the agents, counted together."""
        self.late: list[Intent] = []
        """Requests that are still on their way; nobody waits for them any more."""
        self.intents: list[Intent] = []
        for name in nodes or ("n1",):
            self.add_node(name)
        self._checks = True
        self.store.subscribe(self.check)

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Let a stranger break what only we may touch; the invariants count again afterwards."""
        self._checks = False
        yield
        self._checks = True

    def add_node(self, name: str) -> None:
        text = topology_of(self.machine_name, name)
        written = {
            keys.TOPOLOGY: text,
            keys.TOPOLOGY_DIGEST: digest(text),
            keys.OBSERVED: encode_observed(Observed({})),
        }
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        node = self.store.create(NODES, "", {"metadata": {"name": name, "annotations": written}, "status": status})
        if self.ledgers:
            ledger = encode_ledger(Ledger(1, (), node["metadata"]["uid"]))
            self.patch(NODES, name, {"metadata": {"annotations": {keys.LEDGER: ledger}}})

    def add_pod(self, name: str, gpus: int = 2, share_gib: int = 0, /, **annotations: str) -> Object:
        limits = {keys.SHARE_RESOURCE: str(share_gib)} if share_gib else {keys.GPU_RESOURCE: str(gpus)}
        return self._create_pod(name, limits, annotations)

    def add_gated_pod(self, name: str, gate: str, gpus: int = 2) -> Object:
        """Create a pod behind a scheduling gate."""
        return self._create_pod(name, {keys.GPU_RESOURCE: str(gpus)}, {}, schedulingGates=[{"name": gate}])

    def _create_pod(self, name: str, limits: dict[str, str], annotations: dict[str, str], **spec: object) -> Object:
        containers = [{"name": "main", "resources": {"limits": limits}}]
        metadata = {"name": name, "annotations": annotations}
        return self.store.create(PODS, "default", {"metadata": metadata, "spec": {"containers": containers, **spec}})

    def patch(self, resource: ApiResource, name: str, patch: Object, subresource: str = "") -> None:
        namespace = "default" if resource.namespaced else ""
        self.store.modify(resource, namespace, name, lambda old: merge_patch(old, patch), subresource=subresource)

    def annotate_node(self, name: str, **annotations: str | None) -> None:
        values = {f"topo.gputopo.dev/{key}": value for key, value in annotations.items()}
        self.patch(NODES, name, {"metadata": {"annotations": values}})

    def report(self, name: str, generation: int, *sick: str) -> None:
        self.tell(name, NodeGpuStatus(generation, tuple(GpuStatus(gpu, healthy=False) for gpu in sick)))

    def tell(self, name: str, status: NodeGpuStatus) -> None:
        """Let the node's agent write its status."""
        self.annotate_node(name, status=encode_status(status))

    def touch(self, name: str) -> None:
        """Let a third party write to the pod's status."""
        self.patch(PODS, name, {"status": {"message": f"touched at {self.store.resource_version}"}}, "status")

    def set_status(self, name: str, phase: str, state: Literal["running", "terminated"] | None = None) -> None:
        statuses = [{"name": "main", "state": {state: {}}}] if state else []
        self.patch(PODS, name, {"status": {"phase": phase, "containerStatuses": statuses}}, "status")

    def delete(self, name: str, grace_period_seconds: int | None = None) -> None:
        self.store.delete(PODS, "default", name, grace_period_seconds=grace_period_seconds)

    def find(self, name: str, resource: ApiResource = PODS) -> Object | None:
        page = self.store.list(resource)
        return next((item for item in page.items if item["metadata"]["name"] == name), None)

    def claims(self, node: str = "n1") -> dict[str, str]:
        """Return GPU → UID as the node's ledger has it."""
        text = _annotations(self.store.get(NODES, "", node)).get(keys.LEDGER)
        return {claim.gpu: claim.uid for claim in _ledger(text).claims} if text else {}

    def placed(self, name: str) -> frozenset[str]:
        """Return the GPUs of a pod's placement record."""
        found = self.find(name)
        text = _annotations(found).get(keys.PLACEMENT) if found else None
        return _gpus(text) if text else frozenset()

    def execute(self, intent: Intent) -> Reply:
        self.intents.append(intent)
        if isinstance(intent, ListPods):
            found = (item for item in self.store.list(PODS).items if item["spec"].get("nodeName", "") == intent.node)
            return Done(tuple(_decode(Pod, item) for item in found))
        request = to_request(intent)
        url = urlsplit(request.path)
        reply = answer(
            self.store,
            HttpRequest(
                request.method, url.path, dict(parse_qsl(url.query)), request.content_type, request.body or b""
            ),
        )
        assert isinstance(reply, HttpReply)
        return to_reply(intent, reply.code, msgspec.json.encode(reply.body))

    def deliver_late(self) -> None:
        while self.late:
            self.execute(self.late.pop(0))

    def check(self) -> None:
        """INV1 and INV2, as of now."""
        if not self._checks:
            return
        wrong = violations_on_the_way(self.store.list(NODES).items, self.store.list(PODS).items)
        assert not wrong, "\n".join(wrong)


class Replica:
    """One extender process: its caches, and what it drives; a new one knows nothing but the API."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = ClusterState()
        self.seconds = 0.0
        self.attention = ClaimTimers(orphan_seconds=60.0)
        self.repairs = Repairs()
        self._watches = {}
        for resource, kind in ((NODES, Node), (PODS, Pod)):
            page = world.store.list(resource)
            sink: Any = self.state.nodes if resource is NODES else self.state.pods
            sink.replaced([_decode(kind, item) for item in page.items])
            self._watches[resource] = (Watch(world.store, resource, "", everything, page.resource_version), sink, kind)

    def catch_up(self, *resources: ApiResource) -> None:
        """Take in all watch events, or those of these resources."""
        for resource in resources or (NODES, PODS):
            watch, sink, kind = self._watches[resource]
            for event, item in watch.poll():
                (sink.deleted if event == "DELETED" else sink.changed)(_decode(kind, item))

    def clock(self) -> Instant:
        return Instant(self.seconds, 1_800_000_000.0 + self.seconds)

    def start_bind(self, name: str, node: str = "n1", uid: str = "") -> Generator[Intent, Reply, Outcome]:
        found = self.world.find(name)
        uid = uid or (found["metadata"]["uid"] if found else "")
        return bind(self.state, BindTarget("default", name, uid, node), self.clock, deadline=DEADLINE)

    def bind(self, name: str, node: str = "n1", uid: str = "") -> Outcome:
        return drive(self.start_bind(name, node, uid), self.world.execute)

    def reconcile(
        self, rounds: int = 6, seconds: float = 61.0, execute: Callable[[Intent], Reply] | None = None
    ) -> None:
        """Let time pass and do what is due, as often as something may come of it."""
        execute = execute or self.world.execute
        for _ in range(rounds):
            self.catch_up()
            for task in self.attention.due(self.state, self.seconds):
                drive(release(self.state, task), execute)
            for name in self.repairs.due(self.state, self.seconds):
                self.repairs.take_note(name, drive(repair(self.state, name), execute), self.seconds)
            self.seconds += seconds


class Crash(Exception):
    """The process dies here."""


def deliver(world: World, fault: Fault | RequestFault | None, intent: Intent) -> Reply:
    """Let a request meet a fault, or none, and return what its sender hears; raises `Crash`.

    Only of faults that leave it without an answer: a refusal is a reply that a test can give.
    """
    match fault:
        case None:
            return world.execute(intent)
        case Fault.CRASH_BEFORE:
            raise Crash
        case Fault.CRASH_AFTER:
            world.execute(intent)
            raise Crash
        case Fault.LATE_REQUEST:
            world.late.append(intent)
        case _:
            fate = FATES[RequestFault(fault)]
            assert fate.ending is not Ending.TOLD
            for _ in range(fate.arrivals):
                world.execute(intent)
    return NoAnswer(str(fault))


def drive(steps: Generator[Intent, Reply, T], execute: Callable[[Intent], Reply]) -> T:
    """Run a piece of the protocol to its end."""
    try:
        intent = next(steps)
        while True:
            intent = steps.send(execute(intent))
    except StopIteration as stop:
        result: T = stop.value
        return result


def lose_reply(world: World, kind: type[Intent]) -> Callable[[Intent], Reply]:
    """Execute everything, and lose the first reply to an intent of this kind."""
    return _fail_once(kind, partial(deliver, world, RequestFault.LOST_REPLY), world)


def lose_request(world: World, kind: type[Intent]) -> Callable[[Intent], Reply]:
    """Execute everything but the first intent of this kind, which never arrives."""
    return _fail_once(kind, partial(deliver, world, RequestFault.LOST_REQUEST), world)


def delay_request(world: World, kind: type[Intent]) -> Callable[[Intent], Reply]:
    """Hold the first intent of this kind in the network: it arrives with `deliver_late`."""
    return _fail_once(kind, partial(deliver, world, Fault.LATE_REQUEST), world)


def answer_once(world: World, kind: type[Intent], reply: Reply) -> Callable[[Intent], Reply]:
    """Execute everything but the first intent of this kind, which gets this reply instead."""
    return _fail_once(kind, lambda _: reply, world)


def meddle_before(world: World, kind: type[Intent], meddle: Callable[[], object]) -> Callable[[Intent], Reply]:
    """Execute everything, and let something happen just before the first intent of this kind."""
    return _fail_once(kind, lambda intent: (meddle(), world.execute(intent))[1], world)


def _fail_once(kind: type[Intent], fail: Callable[[Intent], Reply], world: World) -> Callable[[Intent], Reply]:
    failed = False

    def execute(intent: Intent) -> Reply:
        nonlocal failed
        if failed or not isinstance(intent, kind):
            return world.execute(intent)
        failed = True
        return fail(intent)

    return execute


def _decode(kind: Any, item: Object) -> Any:
    return msgspec.convert(item, kind)


def _annotations(item: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = item["metadata"].get("annotations") or {}
    return found


def _gpus(text: str) -> frozenset[str]:
    return frozenset(gpu for gpus in decode_placement(text).containers.values() for gpu in gpus)
