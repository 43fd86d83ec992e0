"""The pages that people look at: values in, HTML out, piece by piece; the templates say how it looks.

Whatever is not markup of a template is escaped. Nothing comes from outside, and no script or style stands in a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from extender.inspect.decisions import DecisionPage
from extender.inspect.inspection import BandwidthInfo, Explanation, GpuInfo, NodeDetail, NodeInfo, PodInfo
from extender.inspect.notes import PodNote
from extender.inspect.outlook import written
from extender.inspect.places import WIDEST_FIRST, Place
from extender.inspect.taken import fault_of
from extender.inspect.waiting import WaitingPod
from extender.telemetry.metrics import Figures
from extender.web import assets, picture
from extender.web.curves import Curve
from topology.request.domains import Level, Location

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
class NodeSelection:
    """Which nodes the front page is to show."""

    within: Location = CLUSTER
    containing: str = ""
    """A part of their names."""

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


def overview(
    figures: Figures,
    places: Sequence[Place],
    nodes: Sequence[NodeInfo],
    placed: Sequence[PodInfo],
    waiting: Sequence[WaitingPod],
    *,
    asked: NodeSelection = NodeSelection(),
    following: str | None = None,
) -> Iterator[str]:
    """Return the front page; `following` is the node after which the next page begins, if there is one.

    Of the pods `placed` and `waiting` it may be given the first ones only.
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
    )


def node_page(node: NodeDetail, placed: Sequence[PodInfo], ringed: str = "") -> Iterator[str]:
    """Return one node's page; `ringed` is the pod (`namespace/name`) whose ring the picture shows."""
    facts = [
        _machine(node),
        node.driver_version and f"driver {node.driver_version}",
        node.cuda_version and f"CUDA {node.cuda_version}",
        node.device_plugin.line if node.device_plugin else None,
        node.closed,
        node.set_aside,
        *(holder.line for holder in node.unknown_holders),
    ]
    drawing = f"{_node_path(node.name, '/v1/inspect')}/topology.svg?v={picture.version(node, placed)}"
    return _render(
        "node.html",
        node=node,
        facts=" · ".join(filter(None, facts)),
        placed=placed,
        drawing=drawing,
        ringed=ringed,
        holders=picture.holders(node),
    )


def pod_page(explanation: Explanation, notes: Sequence[PodNote] = ()) -> Iterator[str]:
    """Return one pod's page: where it is, or where it could go and why not elsewhere; `notes`: of features."""
    pod = explanation.pod
    limits = [pod.limits.words] if pod.limits else []
    facts = " · ".join([pod.asked, *limits, pod.phase or "no phase", pod.uid])
    return _render("pod.html", explanation=explanation, notes=notes, pod=pod, facts=facts)


def decisions_page(page: DecisionPage) -> Iterator[str]:
    """Return the page of what was bound, the newest first."""
    return _render("decisions.html", decisions=page.decisions, following=page.next)


def fragmentation_page(times: Sequence[datetime], curves: Sequence[Curve]) -> Iterator[str]:
    """Return the page of what there was room for, minute by minute."""
    return _render("fragmentation.html", times=times, curves=curves)


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


def _front(selection: NodeSelection, after: str = "") -> str:
    fields = {"q": selection.containing, **selection.fields, "after": after}
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"/?{query}" if query else "/"


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
        "fault": fault_of,
        "for_how_long": for_how_long,
        "machine": _machine,
        "node_path": _node_path,
        "pod_path": _pod_path,
        "predicted": _predicted,
        "ring": _ring,
        "said_of": _said_of,
        "written": written,
    }
    environment.globals |= {
        "NO_POD": (picture.BEING_BOUND, picture.SHARERS),
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
