"""The least that an extender can do: the same server and bodies, names parsed and sent back, and the same API writes.

`python -m benchmarks.processes.echo --port N` is the floor that the verbs are measured beside. With `--candidates` filter
passes on the first so many names. With `--kubeconfig` there is a bind, which patches one annotation of the node and posts
the Binding. With `--pydantic` bodies are read and written by pydantic's models, in FastAPI's usual way: what a plain
implementation costs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from benchmarks.processes.client import MERGE_PATCH, ApiClient, RequestRefused
from benchmarks.processes.extender_process import RunningExtender
from benchmarks.processes.process import free_port, running

_CLAIM = "benchmark.gputopo.dev/claim"
_KEEP_ALIVE_SECONDS = 120
"""Longer than kube-scheduler keeps an idle connection."""


class _Names(msgspec.Struct):
    NodeNames: list[str] | None = None


class _Score(msgspec.Struct):
    Host: str
    Score: int


class _Bind(msgspec.Struct):
    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


class _Outcome(msgspec.Struct):
    Error: str = ""


class _ModelOfArgs(BaseModel):
    Pod: dict[str, Any]
    NodeNames: list[str]


class _ModelOfResult(BaseModel):
    NodeNames: list[str]


class _ModelOfScore(BaseModel):
    Host: str
    Score: int


@asynccontextmanager
async def running_echo(
    folder: Path, *, candidates: int = 0, kubeconfig: Path | None = None, pydantic: bool = False
) -> AsyncIterator[RunningExtender]:
    """Run it as a process of its own, and enter once it is ready."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.processes.echo", "--port", str(port), "--candidates", str(candidates)]
    if kubeconfig:
        command += ["--kubeconfig", str(kubeconfig)]
    if pydantic:
        command += ["--pydantic"]
    url = f"http://127.0.0.1:{port}"
    async with running("pydantic" if pydantic else "echo", command, folder, f"{url}/readyz") as process:
        yield RunningExtender(url, process)


def build_of_models() -> FastAPI:
    """Return the application that pydantic reads and writes for; it passes on all names."""
    app = FastAPI()

    @app.post("/v1/extender/filter")
    async def filter_names(args: _ModelOfArgs) -> _ModelOfResult:
        """Pass all nodes on."""
        return _ModelOfResult(NodeNames=args.NodeNames)

    @app.post("/v1/extender/prioritize")
    async def prioritize_names(args: _ModelOfArgs) -> list[_ModelOfScore]:
        """Score every node alike."""
        return [_ModelOfScore(Host=name, Score=0) for name in args.NodeNames]

    @app.get("/readyz")
    async def readyz() -> str:
        """Say that it listens."""
        return "ok"

    return app


def build(candidates: int = 0, kubeconfig: Path | None = None) -> FastAPI:
    """Return the application; 0 `candidates` are all names, and without a `kubeconfig` nothing can be bound."""
    api = ApiClient.from_kubeconfig(kubeconfig) if kubeconfig else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if api is None:
            yield
            return
        async with api:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/extender/filter")
    async def filter_names(request: Request) -> Response:
        """Pass the first nodes on."""
        named = msgspec.json.decode(await request.body(), type=_Names)
        return _json(_Names((named.NodeNames or [])[: candidates or None]))

    @app.post("/v1/extender/prioritize")
    async def prioritize_names(request: Request) -> Response:
        """Score every node alike."""
        names = msgspec.json.decode(await request.body(), type=_Names).NodeNames or []
        return _json([_Score(name, 0) for name in names])

    @app.post("/v1/extender/bind")
    async def bind(request: Request) -> Response:
        """Write something about the pod on its node, then bind it."""
        assert api is not None, "bind needs a kubeconfig"
        try:
            await _bind(api, msgspec.json.decode(await request.body(), type=_Bind))
        except RequestRefused as refused:
            return _json(_Outcome(str(refused)))
        return _json(_Outcome())

    @app.get("/readyz")
    async def readyz() -> str:
        """Say that it listens."""
        return "ok"

    return app


async def _bind(api: ApiClient, asked: _Bind) -> None:
    patch = {"metadata": {"annotations": {_CLAIM: asked.PodUID}}}
    (await api.call("PATCH", f"/api/v1/nodes/{asked.Node}", patch, content_type=MERGE_PATCH)).ok()
    identity = {"name": asked.PodName, "uid": asked.PodUID, "annotations": {_CLAIM: asked.Node}}
    binding = {"metadata": identity, "target": {"kind": "Node", "name": asked.Node}}
    path = f"/api/v1/namespaces/{asked.PodNamespace}/pods/{asked.PodName}/binding"
    (await api.call("POST", path, binding)).ok()


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def main() -> None:
    """Serve on loopback until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--candidates", type=int, default=0)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--pydantic", action="store_true")
    asked = parser.parse_args()
    app = build_of_models() if asked.pydantic else build(asked.candidates, asked.kubeconfig)
    uvicorn.run(app, port=asked.port, access_log=False, log_level="warning", timeout_keep_alive=_KEEP_ALIVE_SECONDS)


if __name__ == "__main__":
    main()
