"""The pages over HTTP: what was asked, who may look now, and what the browser is told to allow.

The verbs' port serves them to operators, who see everything. The port of the view serves them to readers, each of whom a gate
lets in with what that reader may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, islice
from operator import attrgetter
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.state import NOT_LISTED
from extender.inspect import inspection, lists
from extender.inspect.judgement import prepare_judgement
from extender.inspect.lists import NodeFilter, NodeOrder, PodFilter, PodOrder
from extender.inspect.places import node_names_in, places
from extender.inspect.pod_story import EventLine, bandwidth_story, relaxation, request_lines
from extender.inspect.room_over_time import Span
from extender.inspect.samples import GpuSample
from extender.inspect.sight import EVERYTHING, Sight
from extender.inspect.waiting import waiting_pods
from extender.service import Extender, now
from extender.web import pages, paging, picture, queries
from extender.web.concurrency import Crowded
from extender.web.curves import Curve, curves
from extender.web.pages import OF_OPERATORS, PodStory, SiteLinks
from extender.web.queries import BadQuery
from extender.web.remembered import SECONDS, Remembered, RenderedPage
from topology.request.domains import Level, Location

SHOWN: Final = 50
"""Nodes, and placed and waiting pods, on the front page; rows of lists, and decisions, on a page of theirs."""
ISLANDS: Final = 64
"""GPUs of an island that can be looked for."""
HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; object-src 'self'; frame-src 'self'; "
        "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

OF_A_PICTURE: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
"""It has its style in itself, as it is also saved and sent around."""
EventsOf = Callable[[str, str], Awaitable[Sequence[EventLine] | None]]
"""Namespace and UID of a pod → its events, the newest first; `None`: they cannot be read."""


SamplesOf = Callable[[str], Awaitable[Mapping[str, GpuSample] | None]]
"""Name of a node → what its GPUs do, by UUID; `None`: nobody can tell."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, as far as pages depend on it."""

    sight: Sight = EVERYTHING
    events_of: EventsOf | None = None
    """`None`: nobody reads events here."""
    samples_of: SamplesOf | None = None
    """`None`: nobody reads samples here."""


class Denied(Exception):
    """A reader is not let in."""

    def __init__(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers or {}


Gate = Callable[[Request, Extender, str], Awaitable[Reader]]
"""Request, and the namespace that it is about if it names one → who reads; raises `Denied`."""


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """What one reader asks of a page."""

    reader: Reader
    path: Mapping[str, str]
    """What the path names."""
    fields: Mapping[str, str]
    """Of the query, without those that are empty."""
    links: SiteLinks
    events: Sequence[EventLine] | None = None
    """Of the pod that the path names; `None`: they are not read, or the reader may not see them."""
    samples: Mapping[str, GpuSample] | None = None
    """Of the GPUs of the node that the page is about, by UUID; `None`: they are not read."""

    @property
    def key(self) -> str:
        """Tell questions apart whose answers differ."""
        with_events = "" if self.events is None else "events"
        return f"{urlencode(sorted(self.fields.items()))}#{self.sight.key}#{with_events}"

    @property
    def sight(self) -> Sight:
        """What the reader may see."""
        return self.reader.sight


@dataclass(frozen=True, slots=True)
class Draft:
    """A page before it is rendered."""

    pieces: Iterable[str]
    status: int = 200
    media_type: str = "text/html"


_Make = Callable[[Extender, PageQuestion], Awaitable[Draft]]


@dataclass(frozen=True, slots=True)
class PageKind:
    """One kind of page."""

    make: _Make
    fields: Collection[str] = ()
    """Parameters that its query may have."""


async def everybody(request: Request, extender: Extender, namespace: str) -> Reader:
    """Let in whoever reaches the verbs' port, which is for operators."""
    return Reader()


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of one port; the app that has them keeps the extender in `app.state.extender`."""

    gate: Gate = everybody
    links: SiteLinks = OF_OPERATORS
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)
    pages: Mapping[str, PageKind] = field(default_factory=lambda: PAGES)
    remembered: Remembered = field(default_factory=Remembered)

    def routes(self) -> list[Route]:
        """Return a route for each page."""
        return [Route(path, self._endpoint(kind), methods=["GET"]) for path, kind in self.pages.items()]

    def _endpoint(self, kind: PageKind) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            extender: Extender = request.app.state.extender
            if not extender.state.synced:
                return JSONResponse({"detail": NOT_LISTED}, 503, self.headers)
            try:
                fields = queries.fields_of(request.query_params, kind.fields)
                namespace = request.path_params.get("namespace") or fields.get("namespace", "")
                reader = await self.gate(request, extender, namespace)
                events = await _events(reader, extender, request.path_params)
                samples = await _samples(reader, extender, request.path_params) if kind is NODE else None
                question = PageQuestion(reader, request.path_params, fields, self.links, events, samples)
                page = await self._remembered(kind.make, extender, request.url.path, question)
            except BadQuery as error:
                return JSONResponse({"detail": str(error)}, 400, self.headers)
            except Denied as denial:
                return JSONResponse({"detail": str(denial)}, denial.status, {**self.headers, **denial.headers})
            except Crowded as refusal:
                headers = {**self.headers, "Retry-After": f"{SECONDS:.0f}"}
                return PlainTextResponse(f"{refusal}\n", 429, headers)
            headers = {**self.headers, "ETag": page.tag}
            if page.media_type != "text/html":
                headers |= OF_A_PICTURE
            if page.status == 200 and request.headers.get("if-none-match") == page.tag:
                return Response(status_code=304, headers=headers)
            return Response(page.text, page.status, headers, page.media_type)

        return endpoint

    async def _remembered(self, make: _Make, extender: Extender, path: str, question: PageQuestion) -> RenderedPage:
        return await self.remembered.page(f"{path}?{question.key}", lambda: _made(make, extender, question))


async def _events(reader: Reader, extender: Extender, path: Mapping[str, str]) -> Sequence[EventLine] | None:
    """Return the events of the pod that a path names; before the page is made, for which others wait."""
    namespace, name = path.get("namespace", ""), path.get("name", "")
    pod = extender.state.pods.find(namespace, name)
    if reader.events_of is None or pod is None or not reader.sight.sees(namespace):
        return None
    return await reader.events_of(namespace, pod.uid)


async def _samples(reader: Reader, extender: Extender, path: Mapping[str, str]) -> Mapping[str, GpuSample] | None:
    """Return what the GPUs of the node do that a path names, if it is one of ours; before the page is made, as events."""
    name = path["name"]
    return await reader.samples_of(name) if reader.samples_of and name in extender.state.views else None


async def _made(make: _Make, extender: Extender, question: PageQuestion) -> RenderedPage:
    """Make a page, the first one of all once the templates are compiled: others have the event loop meanwhile."""
    await asyncio.to_thread(pages.compile_templates)
    draft = await make(extender, question)
    text = "".join(await extender.calls.listed(draft.pieces))
    return RenderedPage(text.encode(), draft.status, draft.media_type)


async def _overview(extender: Extender, question: PageQuestion) -> Draft:
    """Show everything at a glance, or a block, a rack or an NVLink domain of it; others have their turns between the steps."""
    fields, state, sight = question.fields, extender.state, question.sight
    within = Location(*(fields.get(level.value) for level in Level))
    by_holder = queries.choice(fields, "colour", ("holder", "state"), "state") == "holder"
    asked = pages.NodeSelection(within, fields.get("q", ""), by_holder=by_holder)
    figures, below = extender.figures(), await extender.calls.result(places(state, within))
    names = list(islice(node_names_in(state, within, asked.containing, fields.get("after", "")), SHOWN + 1))
    rows = await extender.calls.listed(lists.with_islands(state, names[:SHOWN], now()))
    following = names[SHOWN - 1] if len(names) > SHOWN else None
    placed, waiting = await _first_pods(extender, sight)
    return Draft(
        pages.overview(
            figures,
            below,
            [sight.node(node) for node, _ in rows],
            inspection.pod_infos(state, placed),
            waiting_pods(state, waiting, now()),
            asked=asked,
            following=following,
            islands={node.name: islands for node, islands in rows},
            links=question.links,
            sight=sight,
            tables=[table.seen_by(sight) for table in extender.features.front_tables()],
        )
    )


async def _nodes(extender: Extender, question: PageQuestion) -> Draft:
    fields, state, moment = question.fields, extender.state, now()
    wanted = NodeFilter(
        containing=fields.get("q", ""),
        namespace=fields.get("namespace", ""),
        owner=fields.get("owner", ""),
        island=queries.number(fields, "island", 2, ISLANDS) or 0,
        order=NodeOrder(queries.choice(fields, "sort", [*NodeOrder], NodeOrder.NAME)),
    )
    by_holder = queries.choice(fields, "colour", ("holder", "state"), "state") == "holder"
    search = lists.select_nodes(state, wanted, question.sight, moment, queries.position(fields), SHOWN + 1)
    selected = await extender.calls.result(state.effort.bounded_steps(search))
    rows = await extender.calls.listed(
        lists.node_rows(state, [name for _, name in selected[:SHOWN]], question.sight, moment)
    )
    following = queries.written(selected[SHOWN - 1]) if len(selected) > SHOWN else None
    return Draft(pages.nodes_page(rows, fields, following, question.sight, by_holder=by_holder))


async def _pods(extender: Extender, question: PageQuestion) -> Draft:
    fields, state = question.fields, extender.state
    standing = queries.choice(fields, "state", ("waiting", "placed"), "")
    wanted = PodFilter(
        containing=fields.get("q", ""),
        namespace=fields.get("namespace", ""),
        owner=fields.get("owner", ""),
        waits=standing == "waiting" if standing else None,
        order=PodOrder(queries.choice(fields, "sort", [*PodOrder], PodOrder.NAME)),
    )
    search = lists.select_pods(state, wanted, question.sight, queries.position(fields), SHOWN + 1)
    selected = await extender.calls.result(search)
    rows = await extender.calls.listed(lists.pod_rows(state, [name for _, name in selected[:SHOWN]], now()))
    following = queries.written(selected[SHOWN - 1]) if len(selected) > SHOWN else None
    return Draft(pages.pods_page(rows, fields, following, question.sight))


async def _node(extender: Extender, question: PageQuestion) -> Draft:
    name, sight = question.path["name"], question.sight
    detail = inspection.node(extender.state, name, now())
    if detail is None:
        return Draft(pages.missing_page(f"There is no node {name}."), 404)
    placed = [pod for pod in inspection.pods_on(extender.state, name) if sight.sees(pod.namespace)]
    ringed = question.fields.get("pod", "")
    shown = sight.node(detail)
    samples = sight.samples(shown, question.samples or {})
    return Draft(pages.node_page(shown, placed, ringed, question.links, samples))


async def _picture(extender: Extender, question: PageQuestion) -> Draft:
    name, sight = question.path["name"], question.sight
    drawn = picture.of_node(extender.state, name, now(), question.fields.get("pod", ""), sight)
    if drawn is None:
        return Draft(pages.missing_page(f"There is no node {name}, or no topology of it."), 404)
    return Draft([drawn], media_type="image/svg+xml")


async def _pod(extender: Extender, question: PageQuestion) -> Draft:
    namespace, name, state, sight = question.path["namespace"], question.path["name"], extender.state, question.sight
    moment, gpu_pod, barred = now(), state.pods.find(namespace, name), None
    if gpu_pod is not None and gpu_pod.node is None and sight.sees(namespace):
        barred = await extender.calls.result(prepare_judgement(state, gpu_pod.pod, moment))
        await extender.calls.gap()
    explanation = inspection.explain(state, namespace, name, moment, barred) if sight.sees(namespace) else None
    if explanation is None or gpu_pod is None:
        missing = f"There is no pod {namespace}/{name} with GPUs, or you may not see it."
        return Draft(pages.missing_page(missing), 404)
    await extender.calls.gap()
    node = inspection.node(state, gpu_pod.node, moment) if gpu_pod.node else None
    story = PodStory(
        request=tuple(request_lines(gpu_pod)),
        owner=lists.owner_name(gpu_pod),
        relaxation=relaxation(state, gpu_pod, moment),
        bandwidth=bandwidth_story(state, gpu_pod),
        decision=extender.history.decisions.of(gpu_pod.uid),
        node=sight.node(node) if node else None,
        placed=tuple(pod for pod in inspection.pods_on(state, node.name) if sight.sees(pod.namespace)) if node else (),
        events=question.events,
    )
    notes = [
        note.model_copy(update={"line": sight.text(note.line)}) for note in extender.features.notes(namespace, name)
    ]
    return Draft(pages.pod_page(sight.explanation(explanation), notes, story))


async def _decisions(extender: Extender, question: PageQuestion) -> Draft:
    after = queries.number(question.fields, "after", 1, 10**queries.MAX_DIGITS)
    page = extender.history.decisions.page(SHOWN, after, lambda decision: question.sight.sees(decision.namespace))
    return Draft(pages.decisions_page(page, question.links))


async def _fragmentation(extender: Extender, question: PageQuestion) -> Draft:
    span = Span(queries.choice(question.fields, "over", [*Span], Span.DAY))
    room, drawn = extender.history.room.over_time(span), list[Curve]()
    for curve in curves(room):
        drawn.append(curve)
        await extender.calls.gap()
    return Draft(pages.fragmentation_page(room.times, drawn, span, question.links))


_LIST: Final = ("q", "namespace", "owner", "sort", "after")
NODE: Final = PageKind(_node, ("pod",))
"""The page that shows samples."""
_FRONT: Final = PageKind(_overview, ("q", "after", "colour", *(level.value for level in Level)))
PAGES: Final[Mapping[str, PageKind]] = {
    "/": _FRONT,
    "/v1/inspect/": _FRONT,
    "/nodes": PageKind(_nodes, (*_LIST, "island", "colour")),
    "/nodes/{name}": NODE,
    "/pods": PageKind(_pods, (*_LIST, "state")),
    "/pods/{namespace}/{name}": PageKind(_pod),
    "/decisions": PageKind(_decisions, ("after",)),
    "/fragmentation": PageKind(_fragmentation, ("over",)),
}
"""By path."""
PICTURE_PATH: Final = "/v1/inspect/nodes/{name}/topology.svg"
PICTURE: Final = PageKind(_picture, ("v", "pod"))
"""The picture of a node, which pages show; the verbs' port serves it with the JSON, to anybody who asks there."""


def _oldest(pod: GpuPod) -> tuple[str, tuple[str, str]]:
    return pod.pod.metadata.creation_timestamp or "", pod.key


async def _first_pods(extender: Extender, sight: Sight) -> tuple[list[GpuPod], list[GpuPod]]:
    """Return the first placed pods and the oldest waiting ones of those that have not ended and that a reader sees."""
    seen, stand_ins = sight.namespaces, extender.state.indexes.stand_ins
    everything, placed, waiting = [*extender.state.pods], list[GpuPod](), list[GpuPod]()
    for start in range(0, len(everything), paging.STEP):
        step = [
            pod
            for pod in everything[start : start + paging.STEP]
            if not pod.stopped and (seen is None or pod.key[0] in seen)
        ]
        with_nodes = (pod for pod in step if pod.node is not None)
        without = (pod for pod in step if pod.node is None and pod.uid not in stand_ins)
        placed = nsmallest(SHOWN, chain(placed, with_nodes), key=attrgetter("key"))
        waiting = nsmallest(SHOWN, chain(waiting, without), key=_oldest)
        await extender.calls.gap()
    return placed, waiting
