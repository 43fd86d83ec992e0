"""Read-only routes for people: JSON under /v1/inspect. Like pages, they give way to kube-scheduler's calls.

They are served on the verbs' port, which is not for everybody; see `listen` in the configuration.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import NOT_LISTED
from extender.config.document import ExtenderConfiguration
from extender.features.configuration import WholeConfiguration
from extender.features.registry import FEATURES
from extender.inspect import inspection
from extender.inspect.control_plane import ExtenderInfo
from extender.inspect.decisions import DecisionPage
from extender.inspect.inspection import Answer, Explanation, NodeDetail, NodePage
from extender.inspect.judgement import Barred, prepare_judgement
from extender.inspect.pods import PodPage
from extender.inspect.room_over_time import RoomOverTime
from extender.inspect.why import Why, why
from extender.kit.clock import Instant
from extender.service import Extender, now
from extender.web import paging, picture
from extender.web.site import OF_A_PICTURE

Found = TypeVar("Found")
Noted = TypeVar("Noted", Explanation, Why)


class Complaint(BaseModel):
    """Why there is no answer."""

    detail: str


async def _extender(request: Request) -> Extender:
    extender: Extender = request.app.state.extender
    if not extender.state.synced:
        raise HTTPException(503, NOT_LISTED)
    await extender.calls.gap()
    return extender


Serving = Annotated[Extender, Depends(_extender)]
Limit = Annotated[int, Query(ge=1, le=200)]
_NOT_YET: Final[dict[int | str, dict[str, Any]]] = {503: {"model": Complaint, "description": "Nothing is known yet"}}
_OR_NOTHING: Final[dict[int | str, dict[str, Any]]] = {**_NOT_YET, 404: {"model": Complaint}}
_DRAWING: Final[dict[int | str, dict[str, Any]]] = {**_OR_NOTHING, 200: {"content": {"image/svg+xml": {}}}}
router = APIRouter()


@router.get("/v1/inspect/nodes", tags=["inspect"], response_model=NodePage, responses=_NOT_YET)
async def list_nodes(extender: Serving, q: str = "", after: str = "", limit: Limit = 100) -> Response:
    """List nodes whose name contains `q`, and who has which GPU."""
    names, following = _slice(extender, q, after, limit)
    return await _page(extender, "nodes", inspection.nodes(extender.state, names, now()), following)


@router.get("/v1/inspect/nodes/{name}", tags=["inspect"], responses=_OR_NOTHING)
async def read_node(extender: Serving, name: str) -> NodeDetail:
    """Show one node: GPUs, matrix, and the best sets among the free ones."""
    return _found(inspection.node(extender.state, name, now()), "no such node")


@router.get("/v1/inspect/nodes/{name}/topology.svg", tags=["inspect"], response_class=Response, responses=_DRAWING)
async def draw_node(extender: Serving, name: str, pod: str = "") -> Response:
    """Draw one node: GPUs in their holders' colours, what is sick marked, and the ring of `pod`, a `namespace/name` on it."""
    drawn = _found(picture.of_node(extender.state, name, now(), pod), "no such node, or no topology")
    return Response(drawn, media_type="image/svg+xml", headers=OF_A_PICTURE)


@router.get("/v1/inspect/pods", tags=["inspect"], response_model=PodPage, responses=_NOT_YET)
async def list_pods(extender: Serving, q: str = "", after: str = "", limit: Limit = 100) -> Response:
    """List the pods whose `namespace/name` contains `q`, and which GPUs they have."""
    namespace, _, name = after.partition("/")
    found = await _pods(extender, limit + 1, lambda pod: pod.key > (namespace, name) and q in "/".join(pod.key))
    following = "/".join(found[limit - 1].key) if len(found) > limit else None
    return await _page(extender, "pods", inspection.shown_pods(extender.state, found[:limit]), following)


@router.get("/v1/inspect/pods/{namespace}/{name}", tags=["inspect"], responses=_OR_NOTHING)
async def explain_pod(extender: Serving, namespace: str, name: str) -> Explanation:
    """Say where a pod could go now, and why not elsewhere."""
    moment = now()
    barred = await _prepared(extender, namespace, name, moment)
    explanation = inspection.explain(extender.state, namespace, name, moment, barred)
    return _with_notes(_found(explanation, "no such pod, or it asks for no GPU"), extender)


@router.get("/v1/inspect/pods/{namespace}/{name}/why", tags=["inspect"], responses=_OR_NOTHING)
async def explain_nodes(
    extender: Serving, namespace: str, name: str, node: str = "", after: str = "", limit: Limit = 100
) -> Why:
    """Say of each node, or of one, why the pod does not fit there; of a placed pod, what it was preferred to."""
    moment, decisions = now(), extender.history.decisions
    barred = await _prepared(extender, namespace, name, moment)
    reasons = why(
        extender.state,
        namespace,
        name,
        moment,
        node=node,
        after=after,
        limit=limit,
        decisions=decisions,
        barred=barred,
    )
    return _with_notes(_found(reasons, "no such pod, or it asks for no GPU"), extender)


@router.get("/v1/inspect/decisions", tags=["inspect"], responses=_NOT_YET)
async def list_decisions(
    extender: Serving, after: Annotated[int | None, Query(ge=1)] = None, limit: Limit = 100
) -> DecisionPage:
    """List what this replica has bound, the newest first: how good it was, and the best other node."""
    return extender.history.decisions.page(limit, after)


@router.get("/v1/inspect/fragmentation", tags=["inspect"], responses=_NOT_YET)
async def read_fragmentation(extender: Serving) -> RoomOverTime:
    """Show for how many pods of each size there was room, each minute of the last day."""
    return extender.history.room.over_time()


@router.get("/v1/inspect/extender", tags=["inspect"])
async def read_extender(request: Request) -> ExtenderInfo:
    """Say which version this replica is, and whether it found the admission policies in force."""
    extender: Extender = request.app.state.extender
    return ExtenderInfo(
        version=request.app.version,
        steers_queues=any(feature.paces_scheduling for feature in extender.features),
        policies_in_force=extender.condition.guard.in_force,
    )


@router.get("/v1/inspect/config", tags=["inspect"], response_model=WholeConfiguration)
async def read_config(request: Request) -> ExtenderConfiguration:
    """Show the configuration in force."""
    extender: Extender = request.app.state.extender
    return extender.config


def _report_of(number: int) -> Callable[[Extender], Awaitable[Answer]]:
    async def read_report(extender: Serving) -> Answer:
        return extender.features.report(FEATURES[number])

    return read_report


for _number, _kind in enumerate(FEATURES):
    if _kind.report_kind is not None:
        router.add_api_route(
            f"/v1/inspect/{_kind.name}",
            _report_of(_number),
            name=f"read_{_kind.name}",
            description=_kind.report_kind.__doc__,
            response_model=_kind.report_kind,
            tags=["inspect"],
            responses=_NOT_YET,
        )


async def _page(extender: Extender, name: str, rows: Iterable[BaseModel], following: str | None) -> Response:
    """Return a page of a list, whose rows are made and written one by one."""
    written = await extender.calls.listed(row.model_dump_json() for row in rows)
    content = f'{{"{name}":[{",".join(written)}],"next":{json.dumps(following)}}}'
    return Response(content, media_type="application/json")


async def _prepared(extender: Extender, namespace: str, name: str, moment: Instant) -> Barred | None:
    """Decide on all nodes for a pod that waits, in steps; `None` where there is nothing to decide."""
    pod = extender.state.pods.find(namespace, name)
    if pod is None or pod.node is not None:
        return None
    barred = await extender.calls.result(prepare_judgement(extender.state, pod.pod, moment))
    await extender.calls.gap()
    return barred


def _with_notes(answer: Noted, extender: Extender) -> Noted:
    return answer.model_copy(update={"notes": extender.features.notes(answer.pod.namespace, answer.pod.name)})


def _found(value: Found | None, complaint: str) -> Found:
    if value is None:
        raise HTTPException(404, complaint)
    return value


def _slice(extender: Extender, query: str, after: str, limit: int) -> tuple[list[str], str | None]:
    names = list(islice(inspection.node_names(extender.state, query, after), limit + 1))
    return names[:limit], names[limit - 1] if len(names) > limit else None


async def _pods(extender: Extender, count: int, where: Callable[[GpuPod], bool]) -> list[GpuPod]:
    """Return the first pods by namespace and name of those that have not ended and that `where` admits."""
    return await paging.first(
        count,
        extender.state.pods,
        lambda pod: pod.key,
        lambda pod: not pod.stopped and where(pod),
        extender.calls.gap,
    )
