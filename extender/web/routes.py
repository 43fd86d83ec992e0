"""The scheduler's verbs over HTTP: bytes in, bytes out, no logic. msgspec reads and writes the bodies.

Whatever is to be said about a pod or a node is said with 200, because kube-scheduler takes any other status for a broken
extender. Other statuses are for callers that are broken themselves (400, 413) or too many (429), and for us while we know too
little (503). A web page in the browser of someone who forwards our port could call us, too, which browsers own up to by `Origin`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from extender.binding.outcome import Bound
from extender.config.limits import LimitsSettings
from extender.kit.plain_structlog import structlog
from extender.service import Extender
from extender.telemetry.core import CROWDED, OUT_OF_TIME, REQUEST_SECONDS, VERDICTS
from extender.verbs.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MalformedBody,
    decode_args,
    decode_binding_args,
    decode_filter_args,
    decode_preemption_args,
    encode,
)
from extender.web.concurrency import Bodies, CallQueue, Crowded, TooLarge

PREFIX: Final = "/v1/extender"
_JSON: Final = "application/json"

Args = TypeVar("Args", ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs)

_score = attrgetter("score")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VerbAnswer:
    """What goes over the wire, and the one word about it that is logged and counted."""

    body: object
    verdict: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verb(Generic[Args]):
    """One verb, at one path."""

    name: str
    decode: Callable[[bytes], Args]
    uid: Callable[[Args], str]
    """Of the pod that it is about."""
    call: Callable[[Extender, Args], Awaitable[VerbAnswer]]
    line: CallQueue

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        started = time.perf_counter()
        extender: Extender = request.app.state.extender
        if "origin" in request.headers:
            return _complaint(403, "not for browsers")
        if why := extender.condition.closed():
            return _complaint(503, why)
        try:
            async with self.line.admitted(request.receive) as body:
                args = self.decode(body)
                answering = self.call(extender, args)
                if extender.traces is not None:
                    answering = extender.traces.verb(self.name, self.uid(args), answering, _told)
                answer = await answering
        except Crowded as refusal:
            _count(extender, self.name, CROWDED, time.perf_counter() - started)
            log.warning("refused", verb=self.name, why=str(refusal))
            return _complaint(429, str(refusal))
        except TooLarge as refusal:
            return _complaint(413, str(refusal))
        except MalformedBody as error:
            log.warning("malformed body", verb=self.name, path=error.path, reason=error.reason)
            return _complaint(400, str(error))
        except ClientDisconnect:
            return _complaint(400, "the request did not arrive")
        content = encode(answer.body)
        seconds = time.perf_counter() - started
        _count(extender, self.name, answer.verdict, seconds)
        facts = {"verb": self.name, **answer.facts, "verdict": answer.verdict}
        log.info(self.name, **facts, duration_seconds=round(seconds, 6))
        return Response(content, media_type=_JSON)


def routes(limits: LimitsSettings) -> list[Route]:
    """Return the routes; the app that has them keeps the extender in `app.state.extender`."""
    bodies = Bodies(limits.bodies)

    def one_at_a_time() -> CallQueue:
        # All but bind is work for this processor alone, so several at once would gain nothing.
        return CallQueue(bodies, limits.filter_body, at_once=1, waiting=limits.waiting)

    binds = CallQueue(bodies, limits.bind_body, at_once=limits.binds, waiting=0)
    verbs: tuple[Verb[Any], ...] = (
        Verb("filter", decode_filter_args, _uid, _filter, one_at_a_time()),
        Verb("prioritize", decode_args, _uid, _prioritize, one_at_a_time()),
        Verb("preempt", decode_preemption_args, _uid, _preempt, one_at_a_time()),
        Verb("bind", decode_binding_args, lambda args: args.pod_uid, _bind, binds),
    )
    return [Route(f"{PREFIX}/{verb.name}", verb.answer, methods=["POST"]) for verb in verbs]


def _count(extender: Extender, verb: str, verdict: str, seconds: float) -> None:
    extender.metrics.observe(REQUEST_SECONDS, seconds, verb)
    extender.metrics.count(VERDICTS, verb, verdict)


async def _filter(extender: Extender, args: ExtenderArgs) -> VerbAnswer:
    result = await extender.filter(args)
    passing = len(result.node_names)
    verdict = "error" if result.error else "fits" if passing else "no-fit"
    return VerbAnswer(result, verdict, {**_pod(args), "nodes": len(args.names), "passing": passing})


async def _prioritize(extender: Extender, args: ExtenderArgs) -> VerbAnswer:
    scores = await extender.prioritize(args)
    best = max(scores, key=_score, default=None)
    verdict = "scored" if best else "no-opinion"
    return VerbAnswer(scores, verdict, {**_pod(args), "nodes": len(scores), "best": best.host if best else None})


async def _preempt(extender: Extender, args: ExtenderPreemptionArgs) -> VerbAnswer:
    preemption = await extender.preempt(args)
    helped = len(preemption.victims)
    verdict = "victims" if helped else OUT_OF_TIME if preemption.unfinished else "no-victims"
    facts = {**_pod(args), "nodes": len(args.candidates), "helped": helped, "unfinished": preemption.unfinished}
    return VerbAnswer(ExtenderPreemptionResult(preemption.victims), verdict, facts)


async def _bind(extender: Extender, args: ExtenderBindingArgs) -> VerbAnswer:
    outcome = await extender.bind(args)
    facts = {"pod": f"{args.pod_namespace}/{args.pod_name}", "uid": args.pod_uid, "node": args.node}
    if isinstance(outcome, Bound):
        gpus = sorted({gpu for gpus in outcome.containers.values() for gpu in gpus})
        return VerbAnswer(ExtenderBindingResult(), "bound", facts | {"gpus": gpus})
    return VerbAnswer(ExtenderBindingResult(outcome.message), outcome.failure, facts | {"why": outcome.message})


def _pod(args: ExtenderArgs | ExtenderPreemptionArgs) -> dict[str, Any]:
    metadata = args.pod.metadata
    return {"pod": f"{metadata.namespace}/{metadata.name}", "uid": metadata.uid}


def _uid(args: ExtenderArgs | ExtenderPreemptionArgs) -> str:
    return args.pod.metadata.uid


def _told(answer: VerbAnswer) -> dict[str, Any]:
    """Return what a trace says of an answer, which is what the log says."""
    return {key: value for key, value in answer.facts.items() if key != "uid"} | {"verdict": answer.verdict}


def _complaint(status: int, why: str) -> Response:
    return Response(encode({"error": why}), status, media_type=_JSON)
