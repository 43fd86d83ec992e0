"""Kubernetes Events on pods and nodes: what came of a request, and what is wrong, once, for people to read.

Posting is nobody's condition: a full queue, a slow server or a refusal drops the event and counts it, and no verb waits.

Events about health have a queue of their own, which is posted first. Users cannot fill it with pods that wait. The other queue is
shared fairly between namespaces.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Literal, NoReturn, Self
from urllib.parse import quote
from uuid import uuid4

import msgspec

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import ObjectMeta
from extender.kit.fair_table import FairTable
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send
from topology.annotations.records import PlacementRecord

REPORTER: Final = "gputopo-extender"
PLACED: Final = "GPUTopologyPlaced"
UNSATISFIED: Final = "GPUTopologyUnsatisfied"
LEDGER_BROKEN: Final = "GPULedgerBroken"
LEDGER_REBUILT: Final = "GPULedgerRebuilt"
CORRECTED: Final = "GPUPlacementCorrected"
ADOPTED: Final = "GPUPlacementAdopted"
CONFLICT: Final = "GPUConflict"
AGENT_SILENT: Final = "GPUAgentSilent"
NOT_FENCED: Final = "GPUPodNotFenced"
MEMBER_EVICTED: Final = "GroupMemberEvicted"
MAX_NOTE_CHARACTERS: Final = 1000
REASONS_NAMED: Final = 3
QUEUE: Final = 1000
"""Events that wait to be posted, those about health not counted."""
HEALTH_QUEUE: Final = 10_000
"""Events about health that wait to be posted: all nodes of a cluster may fall silent at once."""
HEALTH_TRIES: Final = 3
"""Of an event about health that a busy server does not take; of all others there is one."""
RETRY_SECONDS: Final = 10.0
"""Between two tries."""
PER_SECOND: Final = 20.0
QUIET_SECONDS: Final = 300.0
"""A pod hears the same kind of thing no more often: it may be tried again many times a second."""
_REMEMBERED: Final = 10_000
_IS_THERE: Final = 409
_TOO_MANY_REQUESTS: Final = 429
_CONFLICT_ENDS: Final = "nobody else gets it before that is over"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PodName:
    """Which pod an event is about."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: GpuPod) -> Self:
        """Return the name of a pod."""
        return cls(*pod.key, pod.uid)

    @classmethod
    def of_metadata(cls, metadata: ObjectMeta) -> Self:
        """Return the name of a pod by its metadata."""
        return cls(metadata.namespace, metadata.name, metadata.uid)


@dataclass(frozen=True, slots=True)
class NodeName:
    """Which node an event is about; such events are in the namespace `default`."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Event:
    """One sentence about one pod or node."""

    about: PodName | NodeName
    reason: str
    note: str
    type: Literal["Normal", "Warning"]
    case: str = ""
    """Tells apart what is said for one reason: each case is told once, by however many extenders, and after a restart too."""
    is_of_health: bool = False
    """It comes of nodes and GPUs. Users cause no such event by creating pods that wait."""


def placed(pod: PodName, node: str, record: PlacementRecord) -> Event:
    """Say which GPUs the pod got and what they are worth together."""
    count = len({gpu for gpus in record.containers.values() for gpu in gpus})
    note = f"{count} GPUs of {node}"
    if record.affinity is not None:
        note += f", joined by {record.affinity}"
    if record.bandwidth is not None:
        low, high = record.bandwidth.low, record.bandwidth.high
        how = "measured" if record.bandwidth.measured else "predicted"
        note += f", {low:.0f} to {high:.0f} GB/s all-reduce bus bandwidth {how}"
    return Event(pod, PLACED, note, "Normal")


def unsatisfied(pod: PodName, refusals: Counter[str]) -> Event:
    """Say what keeps the nodes from taking the pod: the reasons of most of them, and how many more there are."""
    named = refusals.most_common(REASONS_NAMED)
    reasons = [f"{_nodes(count)}: {reason}" for reason, count in named]
    others = refusals.total() - sum(count for _, count in named)
    return Event(
        pod, UNSATISFIED, "; ".join([*reasons, f"{_nodes(others)}: other reasons"] if others else reasons), "Warning"
    )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def ledger_broken(node: NodeName, why: str) -> Event:
    """Say that nothing is bound to a node for now."""
    return Event(node, LEDGER_BROKEN, f"{why}; no GPU is given away before it is rebuilt", "Warning", is_of_health=True)


def ledger_rebuilt(node: NodeName, pods: int) -> Event:
    """Say what a node's ledger was made of."""
    return Event(node, LEDGER_REBUILT, f"rebuilt from what the {pods} pods there hold", "Normal", is_of_health=True)


def corrected(pod: PodName, gpus: int, node: str, *, adopted: bool) -> Event:
    """Say that a pod runs on other GPUs than we planned, or that we planned none."""
    if adopted:
        return Event(pod, ADOPTED, f"was bound around gputopo and holds {gpus} GPUs of {node}", "Normal")
    return Event(pod, CORRECTED, f"runs on {gpus} other GPUs of {node} than planned", "Warning")


def agent_silent(node: NodeName) -> Event:
    """Say that a node's last report is too old to go by."""
    return Event(
        node,
        AGENT_SILENT,
        "the GPU agent has not reported for too long: new pods go elsewhere",
        "Warning",
        is_of_health=True,
    )


def not_fenced(pod: PodName, why: str) -> Event:
    """Say that a pod which waits keeps others waiting."""
    return Event(pod, NOT_FENCED, f"GPUs wait until this pod can be written to, runs or is gone: {why}", "Warning")


def conflict(node: NodeName, gpu: str, owners: Sequence[str]) -> Event:
    """Say who has one GPU, to those who may read what is said of nodes."""
    return Event(
        node, CONFLICT, f"{gpu} is held by {' and '.join(owners)}; {_CONFLICT_ENDS}", "Warning", is_of_health=True
    )


def shares_gpu(pod: PodName, gpu: str, node: str) -> Event:
    """Say that others have a pod's GPU, too; not who, since they may be another tenant's."""
    return Event(
        pod,
        CONFLICT,
        f"{gpu} of {node} is held by another pod or ResourceClaim, too; {_CONFLICT_ENDS}",
        "Warning",
        is_of_health=True,
    )


def member_evicted(pod: PodName, member: PodName, node: str, why: str) -> Event:
    """Say that a pod of the same group, and of the same namespace, has to go, by whomever."""
    note = f"{member.name} of the same group has to leave {node} ({why}); this pod goes on"
    return Event(pod, MEMBER_EVICTED, note, "Warning", member.uid)


_Key = tuple[str, str, str]
"""UID, reason and case."""


class EventRecorder:
    """Queues events, leaves out what was just said, and posts the rest at a bounded rate."""

    def __init__(self, send: Send, *, per_second: float = PER_SECOND) -> None:
        self.dropped = 0
        """Events that nobody will see: the queue was full, or the server did not take them."""
        self._send = send
        self._interval_seconds = 1.0 / per_second
        self._of_health = FairTable[_Key, Event](HEALTH_QUEUE)
        self._tries = Counter[_Key]()
        """Of events about health that are to be tried again."""
        self._others = FairTable[_Key, Event](QUEUE)
        self._is_queued = asyncio.Event()
        self._said = FairTable[_Key, float](_REMEMBERED)
        """Until when each is no news."""

    def is_news(self, uid: str, reason: str, case: str = "") -> bool:
        """Whether the pod has not heard that kind of thing for a while."""
        return asyncio.get_running_loop().time() >= (self._said.get((uid, reason, case)) or 0.0)

    def record(self, event: Event) -> bool:
        """Queue an event if it is news; never waits.

        Returns `False` where an event about health has found its queue full: then it has to be recorded again later.
        """
        key, namespace = _key_of(event), _namespace_of(event)
        if not self.is_news(*key):
            return True
        if not event.is_of_health:
            if dropped := self._others.put(key, namespace, event):
                self.dropped += 1
                self._said.pop(_key_of(dropped))
        elif len(self._of_health) < HEALTH_QUEUE:
            self._of_health.put(key, namespace, event)
        else:
            self.dropped += 1
            return False
        self._said.put(key, namespace, asyncio.get_running_loop().time() + QUIET_SECONDS)
        self._is_queued.set()
        return True

    async def run(self) -> NoReturn:
        """Post what is queued, until cancelled."""
        while True:
            event = await self._next()
            try:
                status, _ = await self._send(to_request(event, datetime.now(UTC)))
            except Unavailable as error:
                self._retry_or_lose(event, str(error), may_pass=True)
            else:
                if status < 300 or (status == _IS_THERE and event.case):
                    self._tries.pop(_key_of(event), None)
                else:
                    may_pass = status == _TOO_MANY_REQUESTS or status >= 500
                    self._retry_or_lose(event, f"HTTP {status}", may_pass=may_pass)
            await asyncio.sleep(self._interval_seconds)

    def _queue_again(self, event: Event) -> None:
        if self._of_health.put(_key_of(event), _namespace_of(event), event):
            self.dropped += 1
        self._is_queued.set()

    async def _next(self) -> Event:
        while not (queue := self._of_health or self._others):
            self._is_queued.clear()
            await self._is_queued.wait()
        return queue.pop_in_turn()

    def _retry_or_lose(self, event: Event, why: str, *, may_pass: bool) -> None:
        key = _key_of(event)
        self._tries[key] += 1
        if may_pass and event.is_of_health and self._tries[key] < HEALTH_TRIES:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._queue_again, event)
            return
        del self._tries[key]
        self.dropped += 1
        log.debug("event lost", about=event.about.name, reason=event.reason, why=why)


def _key_of(event: Event) -> _Key:
    return event.about.uid, event.reason, event.case


def _namespace_of(event: Event) -> str:
    return event.about.namespace if isinstance(event.about, PodName) else ""


def to_request(event: Event, now: datetime) -> Request:
    """Put an event into the words of the core API."""
    about, stamp = event.about, now.strftime("%Y-%m-%dT%H:%M:%SZ")
    involved = {"apiVersion": "v1", "name": about.name, "uid": about.uid}
    if isinstance(about, PodName):
        namespace, involved = about.namespace, involved | {"kind": "Pod", "namespace": about.namespace}
    else:
        namespace, involved = "default", involved | {"kind": "Node"}
    mark = sha256(f"{about.uid} {event.reason} {event.case}".encode()).hexdigest() if event.case else uuid4().hex
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": f"{about.name[:200].rstrip('-.')}.{mark[:16]}"},
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": event.note[:MAX_NOTE_CHARACTERS],
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "source": {"component": REPORTER},
        "reportingComponent": REPORTER,
        "reportingInstance": REPORTER,
    }
    return Request("POST", f"/api/v1/namespaces/{quote(namespace, safe='')}/events", msgspec.json.encode(body))
