"""Figures as SVG text, the same bytes for the same rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.intervals import interval
from benchmarks.placement.report.sections import LAMBDAS, Column, ReportSection, Spread
from benchmarks.placement.report.values import ScenarioValues
from benchmarks.placement.rows import QUANTILE, mean
from topology.value.score import Weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS, _THEIRS = "#0b6e4f", "#8a8f98"
_PALE = "#c9cdd3"
_NAMED = {PRODUCT: _OURS, "stock-least": "#4269d0", "stock-most": "#d0763f", "best-fit": "#8a5fb0"}
_WIDTH_IN, _HEIGHT_IN = 9.0, 3.6


def section_figure(values: ScenarioValues, section: ReportSection) -> str | None:
    """Return the section's figure as SVG; `None` where there is nothing to draw."""
    draw = {"front": _front, "curve": _curve, "dots": _dots}[section.figure]
    workloads = shown_workloads(values.workloads, section)
    return _beside_one_another(workloads, lambda ax, workload: draw(ax, values, workload, section))


def spread_figure(values: ScenarioValues, section: ReportSection, spread: Spread) -> str | None:
    """Return which part of the jobs had at most how much of a metric, as SVG; `None` where no row says so."""
    metric = f"{spread.metric}{QUANTILE}"
    workloads = [
        workload
        for workload in shown_workloads(values.workloads, section)
        if any(values.along(workload, policy, metric) for policy in values.policies(workload))
    ]
    return _beside_one_another(workloads, lambda ax, workload: _spread(ax, values, workload, spread))


def _beside_one_another(workloads: Sequence[str], draw: Callable[[Axes, str], None]) -> str | None:
    if not workloads:
        return None
    from matplotlib.figure import Figure  # here, as it takes longer than all the rest of the report's imports

    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
    axes = figure.subplots(1, len(workloads), squeeze=False)[0]
    for ax, workload in zip(axes, workloads, strict=True):
        draw(ax, workload)
        ax.set_title(workload, fontsize=9)
        ax.tick_params(labelsize=7)
    return _svg(figure)


def shown_workloads(workloads: Sequence[str], section: ReportSection) -> list[str]:
    """Return at most three workloads, those at measured sensitivity first."""
    if section.extra_workloads:
        return [name for name in workloads if name in section.extra_workloads]
    measured = [name for name in workloads if name.endswith("/measured")]
    return (measured or [*workloads])[:3]


def _front(ax: Axes, values: ScenarioValues, workload: str, section: ReportSection) -> None:
    """Draw every policy as a point of the first two metrics, and the product's λ as a line."""
    up, along = section.columns[:2]
    points = sorted(
        (
            (_mean(values, workload, policy, up), _mean(values, workload, policy, along), policy)
            for policy in values.policies(workload)
            if not policy.startswith(PRODUCT)
        ),
        reverse=True,
    )
    apart = 0.03 * (points[0][0] - points[-1][0]) if points else 0.0
    below = True
    for place, (y, x, policy) in enumerate(points):
        # Names of points at about one height stand over and under them by turns.
        below = not below and place > 0 and points[place - 1][0] - y < apart
        ax.plot([x], [y], "o", color=_THEIRS, markersize=4)
        ax.annotate(policy, (x, y), fontsize=6, xytext=(3, -8 if below else 2), textcoords="offset points")
    ours = (name for name in values.policies(workload) if name == PRODUCT or name.startswith(f"{PRODUCT}@"))
    curve = sorted((name for name in ours if ":" not in name), key=_lambda)
    xs = [_mean(values, workload, name, along) for name in curve]
    ys = [_mean(values, workload, name, up) for name in curve]
    ax.plot(xs, ys, "-", color=_OURS, linewidth=1, marker=".", label=f"gputopo, λ {LAMBDAS[0]:g} to {LAMBDAS[-1]:g}")
    if PRODUCT in values.policies(workload):
        x, y = _mean(values, workload, PRODUCT, along), _mean(values, workload, PRODUCT, up)
        ax.plot([x], [y], "*", color=_OURS, markersize=11, label="gputopo, as it comes")
    ax.set_xlabel(f"{along.title} (fewer is better)", fontsize=8)
    ax.set_ylabel(up.title, fontsize=8)
    left, right = ax.get_xlim()
    ax.set_xlim(left, right + 0.25 * (right - left))  # room for the names
    ax.legend(fontsize=7, loc="center")


def _lambda(name: str) -> float:
    """Return the λ of the product under one of its names."""
    _, _, given = name.partition("@")
    return float(given or Weights().pods_to_come)


def _curve(ax: Axes, values: ScenarioValues, workload: str, section: ReportSection) -> None:
    """Draw the unallocated part along the GPUs asked for."""
    metric = section.columns[0].metric
    for policy in values.policies(workload):
        points = [(x, x - y) for x, y in values.along(workload, policy, metric) if 80 <= x <= 100]
        style = {"color": _OURS, "linewidth": 2.0} if policy == PRODUCT else {"linewidth": 1.0}
        ax.plot([x for x, _ in points], [y for _, y in points], label=policy, **style)
    ax.set_xlabel("GPUs asked for, % of all", fontsize=8)
    ax.set_ylabel("asked for and not allocated, % of all", fontsize=8)
    ax.legend(fontsize=6)


def _dots(ax: Axes, values: ScenarioValues, workload: str, section: ReportSection) -> None:
    """Draw the first metric of each policy with its interval; dots, since the axis need not begin at zero."""
    column = section.columns[0]
    policies = [name for name in values.policies(workload) if values.of(workload, name, column)]
    for place, name in enumerate(policies):
        found = interval([*values.of(workload, name, column).values()])
        spread = found.half_width if found.half_width < inf else 0.0
        color = _OURS if name == PRODUCT else _THEIRS
        ax.errorbar([found.mean], [place], xerr=[spread], fmt="o", color=color, markersize=5, capsize=2, linewidth=1)
    ax.set_yticks(range(len(policies)), policies)
    ax.invert_yaxis()
    ax.grid(axis="x", linewidth=0.3)
    ax.set_xlabel(column.title + (" (more is better)" if column.higher_is_better else " (less is better)"), fontsize=8)


def _spread(ax: Axes, values: ScenarioValues, workload: str, spread: Spread) -> None:
    """Draw the share of jobs up to each value; those that most people run have names, the others are one grey."""
    others = "each other policy"
    for policy in values.policies(workload):
        points = values.along(workload, policy, f"{spread.metric}{QUANTILE}")
        color = _NAMED.get(policy, _PALE)
        label = policy if policy in _NAMED else others
        width = 2.0 if policy == PRODUCT else 0.9
        ax.plot([y for _, y in points], [x for x, _ in points], color=color, linewidth=width, label=label)
        if points and label == others:
            others = f"_{others}"  # said once: matplotlib leaves names with this sign out of the legend
    ax.set_xlabel(spread.title, fontsize=8)
    ax.set_ylabel("jobs with at most so much, %", fontsize=8)
    ax.grid(linewidth=0.3)
    ax.legend(fontsize=6)


def _mean(values: ScenarioValues, workload: str, policy: str, column: Column) -> float:
    return mean(values.of(workload, policy, column).values())


def _svg(figure: Figure) -> str:
    """Write the figure without a date and with names that do not change from run to run."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "gputopo", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()
