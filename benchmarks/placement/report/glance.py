"""The gain at a glance: a picture for a README, from a few figures of the report that are kept beside it.

`python -m benchmarks.placement.report.glance FIGURES.json` prints it. Plain SVG, so that it is the same everywhere.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any, Final

from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.sections import Column
from benchmarks.placement.report.values import ScenarioValues

WORKLOAD: Final = "dgx-1v/load-0.82"
BARS: Final = {
    "clique_ratio_4": "4-GPU jobs on an NVLink clique",
    "bandwidth_ratio_2": "bandwidth of 2-GPU jobs over the best there is",
}
POLICIES: Final = {
    "stock-least": "kube-scheduler",
    "stock-most": "fullest node",
    "hami-binpack": "HAMi",
    "hived-links": "HiveD",
    "mapa-preserve-fleet": "MAPA",
    "topo-aware": "TOPO-AWARE",
    "topo-aware-links": "…, by links",
    PRODUCT: "gputopo",
}
"""Policy → what the picture calls it; of each peer the form that does best here."""

_OURS, _THEIRS, _INK, _PAPER = "#0b6e4f", "#a9aeb6", "#1c1e21", "#ffffff"
_FONT = 'font-family="system-ui, sans-serif" font-size="12" role="img"'
_NAMES, _BAR, _GAP, _ROW, _TOP = 118, 230, 60, 24, 58


def figures(values: ScenarioValues) -> dict[str, Any] | None:
    """Return what the picture needs of the rows of `link-graph`; `None` where some of it was not run."""
    if WORKLOAD not in values.workloads:
        return None
    shares: dict[str, list[float]] = {}
    for policy in POLICIES:
        found = [values.of(WORKLOAD, policy, Column(metric, "", higher_is_better=True)) for metric in BARS]
        if not all(found):
            return None
        shares[policy] = [round(sum(by_seed.values()) / len(by_seed), 4) for by_seed in found]
    seeds = len(values.of(WORKLOAD, PRODUCT, Column(next(iter(BARS)), "", higher_is_better=True)))
    return {"workload": WORKLOAD, "seeds": seeds, "bars": [*BARS], "policies": shares}


def draw(kept: dict[str, Any]) -> str:
    """Return the picture as SVG."""
    width, height = _NAMES + 2 * (_BAR + _GAP), _TOP + _ROW * len(kept["policies"]) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="{_PAPER}"/>',
        _text(12, 20, "Ten DGX-1V, load 82 %: jobs of 1, 2 and 4 GPUs come and go", size=13, bold=True),
    ]
    for column, metric in enumerate(kept["bars"]):
        parts.append(_text(_NAMES + column * (_BAR + _GAP), 44, BARS[metric]))
    for row, (policy, shares) in enumerate(kept["policies"].items()):
        y, ours = _TOP + row * _ROW, policy == PRODUCT
        parts.append(_text(12, y + 12, POLICIES[policy], bold=ours))
        for column, share in enumerate(shares):
            x, length = _NAMES + column * (_BAR + _GAP), round(_BAR * share, 1)
            parts.append(f'<rect x="{x}" y="{y}" width="{length}" height="16" fill="{_OURS if ours else _THEIRS}"/>')
            parts.append(_text(round(x + length + 5, 1), y + 12, f"{100 * share:.1f} %", bold=ours))
    note = f"Means of {kept['seeds']} seeds with 6,000 jobs each. gputopo-bench report prints the intervals."
    parts += [_text(12, height - 10, note, size=10), "</svg>"]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, words: str, *, size: int = 12, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{_INK}"{weight}>{escape(words)}</text>'


if __name__ == "__main__":
    sys.stdout.write(draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
