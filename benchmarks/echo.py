"""The floor of any extender: the same server and body format, and a handler that parses the names and sends them back."""

from __future__ import annotations

import msgspec
from fastapi import FastAPI, Request, Response

app = FastAPI()


class _Names(msgspec.Struct):
    NodeNames: list[str] | None = None


class _Score(msgspec.Struct):
    Host: str
    Score: int


@app.post("/v1/extender/filter")
async def filter_names(request: Request) -> Response:
    """Pass every node on."""
    return _json(msgspec.json.decode(await request.body(), type=_Names))


@app.post("/v1/extender/prioritize")
async def prioritize_names(request: Request) -> Response:
    """Score every node alike."""
    names = msgspec.json.decode(await request.body(), type=_Names).NodeNames or []
    return _json([_Score(name, 0) for name in names])


@app.get("/readyz")
async def readyz() -> str:
    """Say that it listens."""
    return "ok"


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
