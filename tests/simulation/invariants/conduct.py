"""How the extenders behave: what they say to kube-scheduler, and how they treat the API server.

- INV5 bind says yes exactly when the pod is bound there with that record
- A2 no bind takes longer than its deadline
- A3 no bind tries more than its rounds
- SUM no bind claims more than its pod asks for, with the claims on other nodes that its process has heard of
- A4 nobody asks for the like of what was turned away before Retry-After is over
- C14 no decision before both lists have arrived
- W5 no cache goes back
- W6 a watch goes on from the last version that was listed or heard
- LIFE no background task ends on its own
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks.simulated.double.api import HttpRequest
from extender.binding.bind import MAX_ROUNDS
from extender.binding.intents import BindPod, Done, Intent, Reply, SwapLedger
from extender.binding.outcome import Bound, Failure, NotBound, Outcome
from extender.verbs.wire import ExtenderBindingArgs, ExtenderFilterResult
from tests.simulation.invariants.evictions import Evictions
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.invariants.paths import Exchange, bind_paths
from tests.simulation.invariants.registers import Registers
from tests.simulation.invariants.together import Placed
from tests.simulation.trace import Trace
from tests.simulation.world.process import BIND_SECONDS, PAGE_SIZE, Process
from tests.simulation.world.server import Server
from tests.simulation.world.wire import Answer
from tests.world.records import record_text
from topology.annotations.records import Claim, decode_ledger, decode_placement
from topology.errors import PayloadError

_LATEST_SECONDS = BIND_SECONDS + 0.5
_LISTED = {"/api/v1/nodes", "/api/v1/pods"}


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    continuation: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta


_decode_page = msgspec.json.Decoder(_Page).decode


class Conduct:
    """Is told what every process asks, hears and says."""

    def __init__(
        self, ownership: Ownership, registers: Registers, evictions: Evictions, server: Server, trace: Trace
    ) -> None:
        self._ownership = ownership
        self._registers = registers
        self._evictions = evictions
        self._server = server
        self._trace = trace
        self._listed: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        """Process and start → path → the oldest version that its next watch may begin at."""
        self._asked: dict[asyncio.Task[Any] | None, Counter[tuple[type[Intent], str]]] = defaultdict(Counter)
        self._exchanges: dict[asyncio.Task[Any] | None, list[Exchange]] = defaultdict(list)

    async def watch(self, replicas: Sequence[Process]) -> None:
        """W5: look again and again whether a cache has gone back, for ever."""
        newest: dict[tuple[str, int, str], int] = {}
        while True:
            await asyncio.sleep(0.5)
            for process in replicas:
                for uid, version in _cached(process):
                    key = process.name, process.starts, uid
                    if version < newest.get(key, 0):
                        self._trace.violation("W5", f"{process.name} went back to @{version} of {uid}")
                    newest[key] = version

    def asks(self, process: Process, intent: Intent) -> None:
        """A3 and SUM."""
        self._registers.asks(intent)
        if not isinstance(intent, BindPod | SwapLedger):
            return
        key, asked = (type(intent), intent.node), self._asked[asyncio.current_task()]
        asked[key] += 1
        if asked[key] > MAX_ROUNDS + isinstance(intent, SwapLedger):
            self._trace.violation("A3", f"{process.name} goes on and on: {type(intent).__name__}")
        if isinstance(intent, SwapLedger) and intent.digest is not None:  # claims begin, that rest on the topology
            self._check_sum(process, intent)

    def hears(self, process: Process, intent: Intent, reply: Reply) -> None:
        """Count what the protocol meets, and remember it for the end."""
        self._trace.count(f"reply: {type(intent).__name__} {type(reply).__name__}")
        self._exchanges[asyncio.current_task()].append((intent, reply))
        self._registers.hears(reply)

    def sends(self, process: Process, request: HttpRequest, *, early: bool) -> None:
        """A4 and W6, and evictions."""
        if request.path.endswith("/eviction"):
            self._evictions.sent(process.name, request)
        if early:
            self._trace.violation("A4", f"{process.name} asks before Retry-After is over: {request.path}")
        if request.query.get("watch"):
            since, known = int(request.query["resourceVersion"]), self._listed[process.name, process.starts]
            if since < known.get(request.path, 0):
                self._trace.violation(
                    "W6", f"{process.name} watches from @{since}, and has heard @{known[request.path]}"
                )
            known[request.path] = since

    def receives(self, process: Process, request: HttpRequest, answer: Answer) -> None:
        """Remember which lists are complete."""
        is_list = request.path in _LISTED and request.query.get("limit") == str(PAGE_SIZE)
        if is_list and answer.status == 200:
            page = _decode_page(answer.body).metadata
            if not page.continuation:
                self._listed[process.name, process.starts][request.path] = int(page.resource_version)

    def filtered(self, process: Process, result: ExtenderFilterResult) -> None:
        """C14."""
        if result.node_names and not _LISTED.issubset(self._listed[process.name, process.starts]):
            self._trace.violation("C14", f"{process.name} decides before it has listed everything")

    def bound(self, process: Process, args: ExtenderBindingArgs, outcome: Outcome, seconds: float) -> None:
        """A2 and INV5."""
        told = "bound" if isinstance(outcome, Bound) else f"{outcome.failure}: {outcome.message}"
        self._trace.note(process.name, f"answers bind {args.pod_name} ({args.pod_uid}) to {args.node}: {told}")
        self._trace.count(f"bind: {'bound' if isinstance(outcome, Bound) else outcome.failure}")
        if seconds > _LATEST_SECONDS and process.keeps_time(seconds):
            self._trace.violation("A2", f"a bind took {seconds:.1f} s")
        exchanges = self._exchanges[asyncio.current_task()]
        for path in bind_paths(args.pod_uid, args.node, exchanges, outcome):
            self._trace.count(f"path: {path}")
        if isinstance(outcome, Bound):
            self._check_yes(args, outcome)
        else:
            self._check_no(args, outcome, exchanges)

    def died(self, process: Process, causes: Mapping[str, str]) -> None:
        """LIFE."""
        self._trace.violation("LIFE", f"{process.name}: {dict(causes)}")

    def _check_sum(self, process: Process, swap: SwapLedger) -> None:
        """Add up what the process has heard the pods to have whose claims begin, and what they would have then."""
        assert process.extender is not None
        state, before = process.extender.state, _claims(swap.expected)
        for uid in sorted({claim.uid for claim in _claims(swap.ledger) - before}):
            pod = state.pods.get(uid)
            if pod is None or pod.node is not None:
                continue
            known = [state.nodes.get(name) for name in state.nodes if name != swap.node]
            texts = [swap.ledger, *(each.payloads.ledger.text for each in known if each)]
            claims = sum(claim.uid == uid for text in texts for claim in _claims(text))
            self._trace.count("sum: claims of a pod that are added up")
            if claims > (len(pod.shares) or pod.gpus or 0):
                self._trace.violation("SUM", f"{process.name} gives {uid} {claims} claims on {len(texts)} nodes")

    def _check_yes(self, args: ExtenderBindingArgs, outcome: Bound) -> None:
        placed = self._ownership.placed.get(args.pod_uid)
        if placed is None or placed.node != args.node:
            where = "not bound" if placed is None else f"on {placed.node}"
            self._trace.violation("INV5", f"bind says that {args.pod_uid} is on {args.node}, and it is {where}")
        elif dict(outcome.record.containers) != self._recorded(args.pod_uid, placed):
            self._trace.violation("INV5", f"bind says {outcome.record} of {args.pod_uid}, and its record does not")

    def _recorded(self, uid: str, placed: Placed) -> Mapping[str, tuple[str, ...]]:
        """Return the GPUs of the pod's record; a pod that was bound without one gets it from an extender that adopts the pod."""
        if placed.containers is not None:
            return placed.containers
        pod = self._server.pod(uid)
        text = record_text(pod) if pod else None
        return decode_placement(text).containers if text else {}

    def _check_no(self, args: ExtenderBindingArgs, outcome: NotBound, exchanges: Sequence[Exchange]) -> None:
        """See that what was refused with certainty is so, and that who was told of success says it."""
        placed = self._ownership.placed.get(args.pod_uid)
        if any(isinstance(intent, BindPod) and isinstance(reply, Done) for intent, reply in exchanges):
            self._trace.violation("INV5", f"bind says {outcome.failure} of {args.pod_uid}, and knows that it bound it")
        match outcome.failure:
            case Failure.BOUND_ELSEWHERE:
                wrong = placed is None or placed.node == args.node
            case Failure.NO_RECORD:
                wrong = placed is None or placed.containers is not None
            case Failure.POD_GONE:
                wrong = self._server.pod(args.pod_uid) is not None
            case _:
                wrong = False
        if wrong:
            self._trace.violation("INV5", f"bind says {outcome.failure} of {args.pod_uid}, which is not so")


def _claims(text: str | None) -> set[Claim]:
    """Return what a ledger says; one that cannot be read says nothing."""
    try:
        return set(decode_ledger(text).claims) if text else set()
    except PayloadError:
        return set()


def _cached(process: Process) -> Iterator[tuple[str, int]]:
    """Yield UID and version of all that a process has in its caches."""
    if process.extender is not None:
        state = process.extender.state
        for pod in state.pods:
            yield pod.uid, int(pod.pod.metadata.resource_version)
        for name in state.nodes:
            known = state.nodes.get(name)
            if known is not None:
                yield known.node.metadata.uid, int(known.node.metadata.resource_version)
