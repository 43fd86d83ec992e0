"""Where a pod could go if it were created: POST of a pod to /v1/inspect/what-if, for `kubectl gputopo what-if`.

Nothing is written, and nothing remembered. It costs about as much as a filter call, so one is worked on at a time and few wait.
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from extender.cluster.objects.kinds import Pod
from extender.cluster.state import NOT_LISTED
from extender.inspect.judgement import prepare_judgement
from extender.inspect.what_if import nobody_yet, what_if
from extender.kubernetes.documents import BrokenStream, decoder
from extender.service import Extender, now
from extender.web.concurrency import Bodies, CallQueue, Crowded, TooLarge

PATH: Final = "/v1/inspect/what-if"
MAX_BODY_BYTES: Final = 2 << 20
"""No API server takes a larger pod."""
WAITING: Final = 4

_decode = decoder(Pod)


def routes() -> list[Route]:
    """Return the route; the app that has it keeps the extender in `app.state.extender`."""
    line = CallQueue(Bodies((1 + WAITING) * MAX_BODY_BYTES), MAX_BODY_BYTES, at_once=1, waiting=WAITING)

    async def endpoint(request: Request) -> Response:
        extender: Extender = request.app.state.extender
        if "origin" in request.headers:
            return _complaint(403, "not for browsers")
        if not extender.state.synced:
            return _complaint(503, NOT_LISTED)
        try:
            async with line.admitted(request.receive) as body:
                pod, moment = _decode(body), now()
                barred = await extender.calls.result(prepare_judgement(extender.state, nobody_yet(pod), moment))
                await extender.calls.gap()
                answer = what_if(extender.state, pod, moment, barred)
        except Crowded as refusal:
            return _complaint(429, str(refusal))
        except TooLarge as refusal:
            return _complaint(413, str(refusal))
        except BrokenStream as error:
            return _complaint(400, str(error))
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(answer.model_dump_json(), media_type="application/json")

    return [Route(PATH, endpoint, methods=["POST"])]


def _complaint(status: int, why: str) -> Response:
    return Response(msgspec.json.encode({"detail": why}), status, media_type="application/json")
