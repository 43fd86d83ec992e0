"""The pages that people look at: values in, HTML out, piece by piece; the templates say how it looks.

Whatever is not markup of a template is escaped. Nothing comes from outside, and no script or style stands in a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode
from zlib import crc32

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from extender.inspect.decisions import Decision, DecisionPage
from extender.inspect.front_tables import FrontTable
from extender.inspect.inspection import BandwidthInfo, Explanation, GpuInfo, NodeDetail, NodeInfo, PodInfo
from extender.inspect.lists import NodeOrder, NodeRow, PodOrder, PodRow
from extender.inspect.notes import PodNote
from extender.inspect.outlook import written
from extender.inspect.places import WIDEST_FIRST, Place
from extender.inspect.pod_story import AFFINITIES, REASONS, BandwidthStory, EventLine, RequestLine
from extender.inspect.room_over_time import Span
from extender.inspect.samples import GpuSample
from extender.inspect.sight import EVERYTHING, HIDDEN, Sight
from extender.inspect.taken import fault_of
from extender.inspect.waiting import WaitingPod
from extender.telemetry.metrics import Figures
from extender.web import assets, picture
from extender.web.curves import Curve, Ticks, ticks_of
from topology.formats.marks import COLOURS
from topology.request.domains import Level, Location

NOT_PLACED: Final = BandwidthStory()
STATES: Final = {
    "free": "free",
    "held": "held for a pod that is being bound",
    "claimed": "claimed",
    "shared": "shared by memory",
    "unplanned": "in use, and not by plan",
    "unusable": "not usable",
    "conflict": "held by two pods",
}
LEVELS: Final = {Level.BLOCK: "block", Level.RACK: "rack", Level.NVLINK_DOMAIN: "NVLink domain"}
CLUSTER: Final = Location()
"""No block, no rack: all of it."""
PLACES: Final = 100
"""Shown at most; the search field leads to the nodes of others."""


@dataclass(frozen=True, slots=True)
class SiteLinks:
    """Where pages lead outside themselves."""

    has_json: bool = True
    """Whether the same port serves JSON."""
    grafana: str = ""
    """Address of a Grafana with the chart's dashboards, without a slash at its end; empty: none."""

    def dashboard(self, node: str) -> str:
        """Return the address of a node's dashboard; empty where there is no Grafana."""
        return f"{self.grafana}/d/gputopo-node?{urlencode({'var-node': node})}" if self.grafana else ""


OF_OPERATORS: Final = SiteLinks()


@dataclass(frozen=True, slots=True)
class PodStory:
    """What a pod's page shows beside its explanation."""

    request: tuple[RequestLine, ...] = ()
    owner: str = ""
    relaxation: str = ""
    bandwidth: BandwidthStory = NOT_PLACED
    decision: Decision | None = None
    node: NodeDetail | None = None
    """Where it is."""
    placed: tuple[PodInfo, ...] = ()
    """The pods there, as far as the reader may see them."""
    events: Sequence[EventLine] | None = None
    """The newest first; `None`: they are not read here."""

    @property
    def drawing(self) -> str:
        """The address of the picture of its node."""
        return _drawing(self.node, self.placed) if self.node and self.node.matrix else ""


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Which nodes the front page is to show."""

    within: Location = CLUSTER
    containing: str = ""
    """A part of their names."""
    by_holder: bool = False
    """Whether GPUs have the colours of their holders, and not of their states."""

    @property
    def trail(self) -> list[tuple[str, str]]:
        """What leads here from the whole cluster: words and address of each step."""
        steps, place = [("cluster", "/")], CLUSTER
        for level in WIDEST_FIRST:
            name = self.within.domain(level)[1]
            if name is not None:
                place = place.at(level, name)
                steps.append((f"{LEVELS[level]} {name}", _front(NodeSelection(place))))
        return steps

    @property
    def fields(self) -> dict[str, str]:
        """The places as fields of a query."""
        return {level.value: name for level in WIDEST_FIRST if (name := self.within.domain(level)[1]) is not None}

    def into(self, place: Place) -> str | None:
        """Return the address of a place in here."""
        return None if place.name is None else _front(NodeSelection(self.within.at(place.level, place.name)))

    def following(self, name: str) -> str:
        """Return the address of the nodes after that one."""
        return _front(self, name)

    @property
    def recoloured(self) -> str:
        """The address of the same nodes in the other colours."""
        return _front(replace(self, by_holder=not self.by_holder))


def overview(
    figures: Figures,
    places: Sequence[Place],
    nodes: Sequence[NodeInfo],
    placed: Sequence[PodInfo],
    waiting: Sequence[WaitingPod],
    *,
    asked: NodeSelection = NodeSelection(),
    following: str | None = None,
    islands: Mapping[str, Sequence[Sequence[int]]] = {},
    links: SiteLinks = OF_OPERATORS,
    sight: Sight = EVERYTHING,
    tables: Sequence[FrontTable] = (),
) -> Iterator[str]:
    """Return the front page; `following` is the node after which the next page begins, if there is one.

    Of the pods `placed` and `waiting` it may be given the first ones only. `islands` are the places of GPUs that NVLinks join,
    by node.
    """
    return _render(
        "overview.html",
        figures=figures,
        asked=asked,
        places=places[:PLACES],
        places_left=max(0, len(places) - PLACES),
        nodes=nodes,
        placed=placed,
        waiting=waiting,
        following=following,
        islands=islands,
        links=links,
        sight=sight,
        tables=tables,
    )


def nodes_page(
    rows: Sequence[NodeRow],
    fields: Mapping[str, str],
    following: str | None,
    sight: Sight = EVERYTHING,
    *,
    by_holder: bool = False,
) -> Iterator[str]:
    """Return a page of the list of nodes; `fields` are those of the query, and `following` is where the next page begins."""
    recoloured = {**fields, "colour": "state" if by_holder else "holder"}
    return _render(
        "nodes.html",
        rows=rows,
        fields=_shown(fields),
        orders=[*NodeOrder],
        sight=sight,
        by_holder=by_holder,
        following=_address("/nodes", {**fields, "after": following or ""}) if following else None,
        recoloured=_address("/nodes", recoloured),
    )


def pods_page(
    rows: Sequence[PodRow], fields: Mapping[str, str], following: str | None, sight: Sight = EVERYTHING
) -> Iterator[str]:
    """Return a page of the list of pods; `fields` are those of the query, and `following` is where the next page begins."""
    return _render(
        "pods.html",
        rows=rows,
        fields=_shown(fields),
        orders=[*PodOrder],
        sight=sight,
        following=_address("/pods", {**fields, "after": following or ""}) if following else None,
    )


def node_page(
    node: NodeDetail,
    placed: Sequence[PodInfo],
    ringed: str = "",
    links: SiteLinks = OF_OPERATORS,
    samples: Mapping[str, GpuSample] | None = None,
) -> Iterator[str]:
    """Return one node's page.

    `ringed` is the pod (`namespace/name`) whose ring the picture shows. `samples` are what GPUs do, by UUID.
    """
    facts = [
        _machine(node),
        node.driver_version and f"driver {node.driver_version}",
        node.cuda_version and f"CUDA {node.cuda_version}",
        node.device_plugin.line if node.device_plugin else None,
        node.closed,
        node.set_aside,
        *(holder.line for holder in node.unknown_holders),
    ]
    return _render(
        "node.html",
        node=node,
        facts=" · ".join(filter(None, facts)),
        placed=placed,
        drawing=_drawing(node, placed),
        dashboard=links.dashboard(node.name),
        samples=samples or {},
        ringed=ringed,
        holders=picture.holders(node),
    )


def pod_page(explanation: Explanation, notes: Sequence[PodNote] = (), story: PodStory = PodStory()) -> Iterator[str]:
    """Return one pod's page: where it is, or where it could go and why not elsewhere; `notes`: of features."""
    pod = explanation.pod
    limits = [pod.limits.words] if pod.limits else []
    facts = " · ".join([pod.asked, *limits, pod.phase or "no phase", *filter(None, [story.owner]), pod.uid])
    return _render("pod.html", explanation=explanation, notes=notes, pod=pod, facts=facts, story=story)


def decisions_page(page: DecisionPage, links: SiteLinks = OF_OPERATORS) -> Iterator[str]:
    """Return the page of what was bound, the newest first."""
    return _render("decisions.html", decisions=page.decisions, following=page.next, links=links)


def fragmentation_page(
    times: Sequence[datetime], curves: Sequence[Curve], span: Span = Span.DAY, links: SiteLinks = OF_OPERATORS
) -> Iterator[str]:
    """Return the page of what there was room for, over a day or a week."""
    ticks = ticks_of(times, span) if times else Ticks((), ())
    return _render("fragmentation.html", times=times, curves=curves, span=span, spans=[*Span], ticks=ticks, links=links)


def missing_page(what: str) -> Iterator[str]:
    """Return the page for what is not there."""
    return _render("missing.html", what=what)


def for_how_long(seconds: float) -> str:
    """Return a duration as kubectl writes it, two units at most.

    >>> [for_how_long(seconds) for seconds in (5, 125, 7_300, 200_000)]
    ['5s', '2m5s', '2h1m', '2d7h']
    """
    left, parts = int(seconds), list[str]()
    for letter, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{letter}")
    return "".join(part for part in parts[:2] if not part.startswith("0")) or "0s"


def _said_of(gpu: GpuInfo) -> str:
    owner = f" by {gpu.pod}" if gpu.pod else ""
    why = f"; {gpu.line}" if gpu.line else ""
    return f"GPU {gpu.index}: {STATES[gpu.state]}{owner}{why}"


def _machine(node: NodeInfo) -> str:
    counts = Counter(gpu.model for gpu in node.gpus)
    return ", ".join(f"{count} × {model}" for model, count in counts.items())


def _ring(indexes: Iterable[int]) -> str:
    return " → ".join(map(str, indexes))


def _predicted(predicted: BandwidthInfo | None) -> str:
    if predicted is None:
        return ""
    measured = " measured" if predicted.measured else ""
    return f"{predicted.point:.0f}  ({predicted.low:.0f}–{predicted.high:.0f}){measured}"


def _reason(key: str) -> str:
    return REASONS.get(key, key)  # type: ignore[call-overload,no-any-return]


def _affinity(key: str | None) -> str:
    return AFFINITIES.get(key or "", key or "")


def _holder_colour(pod: str | None) -> str:
    """Return the class of a holder's colour, the same on every node; equal ones do not mean that it is one pod."""
    if pod is None:
        return ""
    return "hidden-holder" if pod == HIDDEN else f"h{crc32(pod.encode()) % COLOURS}"


def _front(selection: NodeSelection, after: str = "") -> str:
    colour = "holder" if selection.by_holder else ""
    return _address("/", {"q": selection.containing, **selection.fields, "colour": colour, "after": after})


def _address(path: str, fields: Mapping[str, str]) -> str:
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"{path}?{query}" if query else path


def _shown(fields: Mapping[str, str]) -> Mapping[str, str]:
    """Return what stands in the fields of a list's form."""
    return {name: fields.get(name, "") for name in ("q", "namespace", "owner", "state", "sort", "island")}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _drawing(node: NodeDetail, placed: Sequence[PodInfo]) -> str:
    return f"{_node_path(node.name, '/v1/inspect')}/topology.svg?v={picture.version(node, placed)}"


def _node_path(name: str, root: str = "") -> str:
    return f"{root}/nodes/{quote(name, safe='')}"


def _pod_path(key: str) -> str:
    return "/pods/" + "/".join(quote(part, safe="") for part in key.split("/", 1))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "affinity": _affinity,
        "fault": fault_of,
        "for_how_long": for_how_long,
        "holder_colour": _holder_colour,
        "machine": _machine,
        "node_path": _node_path,
        "pod_path": _pod_path,
        "predicted": _predicted,
        "reason": _reason,
        "ring": _ring,
        "said_of": _said_of,
        "sentence": _sentence,
        "written": written,
    }
    environment.globals |= {
        "HIDDEN": HIDDEN,
        "NO_POD": (picture.BEING_BOUND, picture.SHARERS, HIDDEN),
        "LEVELS": LEVELS,
        "STATES": STATES,
        "script": assets.SCRIPT.path,
        "style": assets.STYLE.path,
    }
    return environment


_ENVIRONMENT: Final = _environment()


def compile_templates() -> None:
    """Compile those of all pages: a tenth of a second the first time, and nothing later on. May run in a thread."""
    for name in _ENVIRONMENT.list_templates(extensions=["html"]):
        _ENVIRONMENT.get_template(name)


def _render(template: str, **values: object) -> Iterator[str]:
    return _ENVIRONMENT.get_template(template).generate(values)
