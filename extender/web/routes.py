"""The scheduler's verbs over HTTP: raw bytes in, raw bytes out, no logic.

Whatever is to be said about a pod or a node is said with 200, because kube-scheduler takes any other status for a broken
extender. Other statuses are for callers that are broken themselves (400, 413) or too many (429), and for us while we know too
little (503). A web page in the browser of someone who forwards our port could call us, too, which browsers own up to by `Origin`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from extender.binding.outcome import Bound
from extender.config import Limits
from extender.metrics import CROWDED, OUT_OF_TIME
from extender.service import Extender
from extender.verbs.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MalformedBody,
    decode_args,
    decode_binding_args,
    decode_preemption_args,
    encode,
)
from extender.web.concurrency import Bodies, Crowded, Line

PREFIX: Final = "/v1/extender"

Args = TypeVar("Args", ExtenderArgs, ExtenderBindingArgs, ExtenderPreemptionArgs)

log = structlog.get_logger(__name__)


def routes(limits: Limits) -> list[Route]:
    """Return the verbs; the app that has them keeps the extender in `app.state.extender`."""
    bodies = Bodies(limits.bodies)
    # All but bind is work for this processor alone, so several at once would gain nothing.
    filters, priorities, preemptions = (Line(bodies, at_once=1, waiting=limits.waiting) for _ in range(3))
    binds = Line(bodies, at_once=limits.binds, waiting=0)
    verbs = {
        "filter": (_endpoint("filter", decode_args, _filter, filters), limits.filter_body),
        "prioritize": (_endpoint("prioritize", decode_args, _prioritize, priorities), limits.filter_body),
        "preempt": (_endpoint("preempt", decode_preemption_args, _preempt, preemptions), limits.filter_body),
        "bind": (_endpoint("bind", decode_binding_args, _bind, binds), limits.bind_body),
    }
    return [
        Route(f"{PREFIX}/{name}", endpoint, methods=["POST"], max_body_size=max_bytes)
        for name, (endpoint, max_bytes) in verbs.items()
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes over the wire, and the one word about it that is logged and counted."""

    body: object
    verdict: str
    facts: dict[str, Any]


def _endpoint(
    verb: str, decode: Callable[[bytes], Args], call: Callable[[Extender, Args], Awaitable[Answer]], line: Line
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        extender: Extender = request.app.state.extender
        started = time.perf_counter()
        if "origin" in request.headers:
            return _complaint(403, "not for browsers")
        if why := extender.closed():
            return _complaint(503, why)
        try:
            async with line.admitted(request) as body:
                answer = await call(extender, decode(body))
        except Crowded as refusal:
            extender.metrics.answered(verb, CROWDED, time.perf_counter() - started)
            log.warning("refused", verb=verb, why=str(refusal))
            return _complaint(429, str(refusal))
        except MalformedBody as error:
            log.warning("malformed body", verb=verb, path=error.path, reason=error.reason)
            return _complaint(400, str(error))
        except ClientDisconnect:
            return Response(status_code=400)
        response = Response(encode(answer.body), media_type="application/json")
        seconds = time.perf_counter() - started
        extender.metrics.answered(verb, answer.verdict, seconds)
        log.info(verb, verb=verb, **answer.facts, verdict=answer.verdict, duration_seconds=round(seconds, 6))
        return response

    return endpoint


async def _filter(extender: Extender, args: ExtenderArgs) -> Answer:
    result = await extender.filter(args)
    passing = len(result.node_names)
    verdict = "error" if result.error else "fits" if passing else "no-fit"
    return Answer(result, verdict, {**_pod(args), "nodes": len(args.names), "passing": passing})


async def _prioritize(extender: Extender, args: ExtenderArgs) -> Answer:
    scores = extender.prioritize(args)
    best = max(scores, key=lambda priority: priority.score, default=None)
    verdict = "scored" if best else "no-opinion"
    return Answer(scores, verdict, {**_pod(args), "nodes": len(scores), "best": best.host if best else None})


async def _preempt(extender: Extender, args: ExtenderPreemptionArgs) -> Answer:
    found = await extender.preempt(args)
    helped = len(found.victims)
    verdict = "victims" if helped else OUT_OF_TIME if found.unfinished else "no-victims"
    facts = {**_pod(args), "nodes": len(args.candidates), "helped": helped, "unfinished": found.unfinished}
    return Answer(ExtenderPreemptionResult(found.victims), verdict, facts)


async def _bind(extender: Extender, args: ExtenderBindingArgs) -> Answer:
    outcome = await extender.bind(args)
    facts = {"pod": f"{args.pod_namespace}/{args.pod_name}", "uid": args.pod_uid, "node": args.node}
    if isinstance(outcome, Bound):
        gpus = sorted({gpu for gpus in outcome.containers.values() for gpu in gpus})
        return Answer(ExtenderBindingResult(), "bound", facts | {"gpus": gpus})
    return Answer(ExtenderBindingResult(outcome.message), outcome.failure, facts | {"why": outcome.message})


def _pod(args: ExtenderArgs | ExtenderPreemptionArgs) -> dict[str, Any]:
    metadata = args.pod.metadata
    return {"pod": f"{metadata.namespace}/{metadata.name}", "uid": metadata.uid}


def _complaint(status: int, why: str) -> Response:
    return Response(encode({"error": why}), status, media_type="application/json")
