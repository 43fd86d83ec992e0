"""The pages that people look at: made whole on the server, nothing from outside, no script.

Colour never stands alone: what a GPU is, its chip says with its form and its title, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from extender.inspect.inspection import BandwidthInfo, BestSet, Explanation, GpuInfo, NodeDetail, NodeInfo, PodInfo
from extender.inspect.nvlinks import LinkFaultInfo
from extender.inspect.outlook import written
from extender.inspect.words import SignInfo
from extender.metrics import Figures
from extender.web.html import Html, el

_STYLE: Final = Html("""\
:root{color-scheme:light dark;--ink:#1f2328;--dim:#59636e;--line:#d0d7de;--page:#f6f8fa;--card:#fff;--accent:#0072b2}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9da7b1;--line:#30363d;--page:#010409;--card:#0d1117;\
--accent:#56b4e9}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 ui-sans-serif,system-ui,\
-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
main{max-width:1100px;margin:0 auto;padding:24px 20px 64px}a{color:var(--accent);text-decoration:none}\
a:hover{text-decoration:underline}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:32px 0 10px}.dim{color:var(--dim)}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}.tile{flex:1 1 120px;padding:12px 16px}
.tile b{display:block;font-size:26px;line-height:1.2;font-variant-numeric:tabular-nums}.card{overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:8px 14px;border-top:1px solid var(--line);\
vertical-align:middle;white-space:nowrap}tr:first-child>*{border-top:0}
th{font-size:12px;font-weight:600;color:var(--dim);text-transform:uppercase;letter-spacing:.04em}
td.wide{white-space:normal}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
code,.mono{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.chip{display:inline-block;width:24px;height:24px;margin:1px;border-radius:5px;border:1.5px solid;text-align:center;\
font:600 11px/21px ui-sans-serif,system-ui,sans-serif}
.free{background:#d9eefa;border-color:#0072b2;color:#083d5c}.claimed{background:#e69f00;border-color:#b35900;color:#2b1b00}
.held{background:#fff3d6;border-color:#b35900;border-style:dashed;color:#5c3a00}
.unplanned{background:#cc79a7;border-color:#8f4a72;border-style:double;border-width:3px;line-height:18px;color:#2e0f20}
.unusable{background:transparent;border-color:#9aa4af;color:#7b8590;text-decoration:line-through}
.conflict{background:#7a1f1f;border-color:#4d0f0f;border-style:double;border-width:3px;line-height:18px;color:#fff}
.legend{display:flex;gap:18px;flex-wrap:wrap;margin:12px 2px;color:var(--dim);font-size:13px}
.picture{display:block;max-width:100%;height:auto}form{display:inline}input{font:inherit;padding:3px 8px;\
border:1px solid var(--line);border-radius:6px;background:var(--card);color:inherit}
""")


_STATES: Final = {
    "free": "free",
    "held": "held for a pod that is being bound",
    "claimed": "claimed",
    "unplanned": "in use, and not by plan",
    "unusable": "not usable",
    "conflict": "held by two pods",
}


def overview(
    figures: Figures,
    nodes: Sequence[NodeInfo],
    placed: Sequence[PodInfo],
    waiting: Sequence[PodInfo],
    *,
    query: str = "",
    following: str | None = None,
) -> str:
    """Return the front page; `following` is the node after which the next page begins, if there is one.

    Of the pods `placed` and `waiting` it may be given the first ones only.
    """
    tiles = [
        (figures["nodes"], "nodes"),
        (figures["gpus"], "GPUs"),
        (figures["gpus_free"], "GPUs free"),
        (figures["pods"], "GPU pods"),
        (figures["pods_waiting"], "waiting"),
    ]
    all_pods = el("a", "all pods, as JSON →", href="/v1/inspect/pods")
    more = el("a", "next nodes →", href=f"/?{urlencode({'q': query, 'after': following})}") if following else ""
    search = el(
        "form", el("input", type="search", name="q", value=query, placeholder="node name…", aria_label="node name")
    )
    return _page(
        "gputopo",
        el("h1", "gputopo"),
        el("div", "Where GPUs are, who has them, and what they are worth together.", class_="dim"),
        el("div", (_tile(f"{value:.0f}", label) for value, label in tiles), class_="tiles"),
        el("h2", "Waiting") if waiting else "",
        _table(("Pod", "GPUs"), (_waiting_row(pod) for pod in waiting)) if waiting else "",
        el("h2", "Nodes ", search),
        _table(("Node", "Machine", "GPUs", "#Free", ""), (_node_row(node) for node in nodes)),
        _legend(),
        more,
        el("h2", "Placements"),
        _placements(placed),
        all_pods if figures["pods"] > len(placed) + len(waiting) else "",
        refresh=True,
    )


def node_page(node: NodeDetail, placed: Sequence[PodInfo]) -> str:
    """Return one node's page."""
    facts = [
        f"driver {node.driver_version}",
        f"CUDA {node.cuda_version}",
        node.device_plugin and node.device_plugin.line,
        node.closed,
    ]
    picture = el("img", src=f"{_node_path(node.name, '/v1/inspect')}/topology.svg", alt="", class_="picture")
    indexes = [str(gpu.index) for gpu in node.gpus]
    matrix = (
        el("tr", el("th", f"GPU{index}"), (el("td", cell, class_="mono") for cell in row))
        for index, row in zip(indexes, node.matrix, strict=False)
    )
    return _page(
        node.name,
        el("div", el("a", "← all nodes", href="/")),
        el("h1", node.name),
        el("div", " · ".join([_machine(node), *(fact for fact in facts if fact and "None" not in fact)]), class_="dim"),
        el("h2", "Topology"),
        picture,
        *_link_faults(node.link_faults),
        *_said_by_others(node.signs),
        el("h2", "What the free GPUs are worth"),
        _table(("#GPUs", "GPUs, in ring order", "Affinity", "#Predicted, GB/s"), map(_best_row, node.best_sets)),
        el("h2", "GPUs"),
        _table(("GPU", "State", "Why", "Next", "Pod", "Container", "NUMA node", "UUID"), map(_gpu_row, node.gpus)),
        _legend(),
        el("h2", "Placements"),
        _placements(placed),
        el("h2", "Matrix"),
        _table(("", *(f"GPU{index}" for index in indexes)), matrix),
    )


def _link_faults(faults: Sequence[LinkFaultInfo]) -> list[Html]:
    rows = [
        el(
            "tr",
            el("td", "?" if fault.index is None else str(fault.index)),
            el("td", ", ".join(map(str, fault.links)), class_="wide"),
            el("td", fault.reason, class_="wide"),
            el("td", written(fault.since)),
            el("td", f"{fault.next} {written(fault.until)}", class_="wide"),
        )
        for fault in faults
    ]
    heads = ("GPU", "NVLinks", "What", "Since", "Next")
    return [el("h2", "NVLinks that are not used"), _table(heads, rows)] if rows else []


def _said_by_others(signs: Sequence[SignInfo]) -> list[Html]:
    rows = [
        el(
            "tr",
            el("td", f"{sign.kind} {sign.name}={sign.value}", class_="wide"),
            el("td", sign.agent),
            el("td", sign.detail, class_="wide"),
            el("td", "yes" if sign.closes else "no"),
        )
        for sign in signs
    ]
    return [el("h2", "What other health agents say"), _table(("Word", "Agent", "Why", "Closes"), rows)] if rows else []


def pod_page(explanation: Explanation) -> str:
    """Return one pod's page: where it is, or where it could go and why not elsewhere."""
    pod = explanation.pod
    parts: list[str] = []
    if explanation.problem:
        parts.append(el("p", f"The pod cannot be understood: {explanation.problem}"))
    if pod.node:
        parts += [el("h2", "Placement"), _placements([pod])]
    elif not explanation.problem:
        parts += [
            *([el("p", explanation.group.line)] if explanation.group else []),
            el("h2", "Where it could go now"),
            _table(
                ("Node", "#GPUs", "GPUs, in ring order", "Affinity", "#Predicted, GB/s", "#Score"),
                (
                    el("tr", el("td", _node_link(fit.node)), _best_cells(fit), _number(f"{fit.score:.3f}"))
                    for fit in explanation.fits
                ),
                empty="nowhere",
            ),
            el("h2", "Why not elsewhere"),
            _table(
                ("#Nodes", "Reason", "For example", "Where", "What would help"),
                (
                    el(
                        "tr",
                        _number(str(refusal.nodes)),
                        el("td", refusal.message, class_="wide"),
                        el("td", _node_link(refusal.example)),
                        el("td", refusal.figures, class_="wide"),
                        el("td", refusal.remedy, class_="wide"),
                    )
                    for refusal in explanation.refusals
                ),
            ),
        ]
    asked = "an unreadable number of GPUs" if pod.gpus is None else f"{pod.gpus} GPUs"
    return _page(
        pod.name,
        el("div", el("a", "← all nodes", href="/")),
        el("h1", f"{pod.namespace}/{pod.name}"),
        el("div", " · ".join([asked, pod.phase or "no phase", pod.uid]), class_="dim"),
        *parts,
    )


def missing_page(what: str) -> str:
    """Return the page for what is not there."""
    return _page("not found", el("div", el("a", "← all nodes", href="/")), el("h1", "Not found"), el("p", what))


def _page(title: str, *content: str, refresh: bool = False) -> str:
    head = [
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="refresh", content="10") if refresh else "",
        el("title", title),
        el("style", _STYLE),
    ]
    return "<!doctype html>\n" + el("html", el("head", head), el("body", el("main", content)), lang="en")


def _table(heads: Iterable[str], rows: Iterable[Html], empty: str = "none") -> Html:
    """Return a table in a card; a head that begins with `#` is one of numbers."""
    body = list(rows)
    if not body:
        return el("div", empty, class_="dim")
    cells = (
        el("th", head.removeprefix("#"), class_="number") if head.startswith("#") else el("th", head) for head in heads
    )
    return el("div", el("table", el("tr", cells), body), class_="card")


def _tile(value: str, label: str) -> Html:
    return el("div", el("b", value), el("span", label, class_="dim"), class_="tile")


def _legend() -> Html:
    return el("div", (el("span", _chip(state, "·"), f" {words}") for state, words in _STATES.items()), class_="legend")


def _chip(state: str, text: str, title: str = "") -> Html:
    return el("span", text, class_=f"chip {state}", title=title or _STATES[state])


def _gpu_chip(gpu: GpuInfo) -> Html:
    owner = f" by {gpu.pod}" if gpu.pod else ""
    why = f"; {gpu.line}" if gpu.line else ""
    return _chip(gpu.state, str(gpu.index), f"GPU {gpu.index}: {_STATES[gpu.state]}{owner}{why}")


def _node_row(node: NodeInfo) -> Html:
    return el(
        "tr",
        el("td", _node_link(node.name)),
        el("td", _machine(node), class_="wide"),
        el("td", map(_gpu_chip, node.gpus), class_="wide"),
        _number(str(node.free)),
        el("td", node.closed or "", class_="wide dim"),
    )


def _gpu_row(gpu: GpuInfo) -> Html:
    return el(
        "tr",
        el("td", _gpu_chip(gpu)),
        el("td", _STATES[gpu.state]),
        el("td", gpu.line, class_="wide"),
        el("td", gpu.outlook.line if gpu.outlook else "", class_="wide"),
        el("td", _pod_link(*gpu.pod.split("/", 1)) if gpu.pod else ""),
        el("td", gpu.container or ""),
        el("td", "" if gpu.numa_node is None else str(gpu.numa_node)),
        el("td", el("code", gpu.uuid)),
    )


def _best_row(best: BestSet) -> Html:
    return el("tr", _best_cells(best))


def _best_cells(best: BestSet) -> list[Html]:
    return [
        _number(str(best.gpus)),
        el("td", _ring(best.indexes), class_="mono"),
        el("td", best.affinity or ""),
        _number(_predicted(best.bandwidth_gb_per_s)),
    ]


def _placements(placed: Sequence[PodInfo]) -> Html:
    return _table(
        ("Pod", "Node", "GPUs, in ring order", "Affinity", "#Predicted, GB/s"),
        (
            el(
                "tr",
                el("td", _pod_link(pod.namespace, pod.name)),
                el("td", _node_link(pod.node or "")),
                el("td", _ring(pod.indexes), class_="mono"),
                el("td", pod.affinity or ("" if pod.containers else "no record")),
                _number(_predicted(pod.bandwidth_gb_per_s)),
            )
            for pod in placed
        ),
    )


def _waiting_row(pod: PodInfo) -> Html:
    return el("tr", el("td", _pod_link(pod.namespace, pod.name)), el("td", "?" if pod.gpus is None else str(pod.gpus)))


def _number(text: str) -> Html:
    return el("td", text, class_="number")


def _ring(indexes: Iterable[int]) -> str:
    return " → ".join(map(str, indexes))


def _predicted(predicted: BandwidthInfo | None) -> str:
    return f"{predicted.point:.0f}  ({predicted.low:.0f}–{predicted.high:.0f})" if predicted else ""


def _machine(node: NodeInfo) -> str:
    counts = Counter(gpu.model for gpu in node.gpus)
    return ", ".join(f"{count} × {model}" for model, count in counts.items())


def _node_link(name: str) -> Html:
    return el("a", name, href=_node_path(name))


def _node_path(name: str, root: str = "") -> str:
    return f"{root}/nodes/{quote(name, safe='')}"


def _pod_link(namespace: str, name: str) -> Html:
    path = f"/pods/{quote(namespace, safe='')}/{quote(name, safe='')}"
    return el("a", f"{namespace}/{name}", href=path)
