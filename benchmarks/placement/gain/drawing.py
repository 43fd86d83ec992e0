"""The answer in pictures: plain SVG whose colours the page may change for the dark.

A picture draws what was measured, and is not there where nothing was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from benchmarks.placement.gain.answer import NAMES, OBSERVE, GainMeasurement, Measure
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.rows import QUANTILE

_WIDTH, _NAMES, _ROW, _TOP = 900, 230, 26, 50
_LEFT, _BOTTOM, _PLOT_WIDTH, _PLOT_HEIGHT = 56, 46, 540, 250
_STEP: Final = 20
_PALETTE: Final = ("#5b7fb5", "#b5785b", "#8a6bb1", "#a08a2e", "#7d838c")
_OURS: Final = {PRODUCT: "var(--ours,#0b6e4f)", OBSERVE: "var(--ours,#0b6e4f)"}
_INK, _RULE = "currentColor", "var(--rule,#ccc)"

Point = tuple[float, float]


def intervals(answer: GainMeasurement) -> str:
    """Return every measure of every policy, with its interval."""
    height = _TOP + _ROW * len(answer.policies) + 34
    parts = [*_head(_WIDTH, height, "Each measure of each policy, with its 95 % interval")]
    for row, policy in enumerate(answer.policies):
        parts.append(_text(0, _TOP + row * _ROW + 4, NAMES[policy], bold=policy in _OURS))
    measured = [measure for measure in Measure if answer.measured(measure, PRODUCT)]
    width = (_WIDTH - _NAMES) / max(1, len(measured))
    for column, measure in enumerate(measured):
        parts += _panel(answer, measure, _NAMES + column * width + 14, width - 40)
    return _joined(parts)


def bandwidth_spread(answer: GainMeasurement) -> str | None:
    """Return which part of the pods of several GPUs got at most how much of the best bandwidth."""
    curves = {
        policy: [(100 * value, x) for x, value in answer.along(f"bandwidth_ratio{QUANTILE}", policy)]
        for policy in answer.policies
    }
    axes = "predicted bandwidth, % of the best", "pods of several GPUs with at most so much, %"
    return _curves("How bandwidth spreads over the pods", curves, axes)


def allocation(answer: GainMeasurement) -> str | None:
    """Return how many of the GPUs were taken as ever more were asked for."""
    curves = {policy: answer.along("allocation_pct", policy) for policy in answer.policies}
    return _curves(
        "GPUs taken as ever more are asked for", curves, ("GPUs asked for, % of all", "GPUs taken, % of all")
    )


def _panel(answer: GainMeasurement, measure: Measure, left: float, width: float) -> Iterator[str]:
    found = [
        (row, policy, each) for row, policy in enumerate(answer.policies) if (each := answer.measured(measure, policy))
    ]
    spreads = [each.half_width if answer.seeds > 1 else 0.0 for _, _, each in found]
    low = min(max(0.0, each.mean - spread) for (_, _, each), spread in zip(found, spreads, strict=True))
    high = max(each.mean + spread for (_, _, each), spread in zip(found, spreads, strict=True))
    scale = width / ((high - low) or 1.0)
    bottom = _TOP + _ROW * len(answer.policies)
    yield _text(left, 14, measure.value, bold=True)
    yield _text(left, 28, "more is better" if measure.more_is_better else "fewer is better", size=11)
    yield _line([(left, bottom - 8), (left + width, bottom - 8)], _RULE)
    yield _text(left, bottom + 10, f"{low:.1f}", size=11)
    yield _text(left + width, bottom + 10, f"{high:.1f}", size=11, anchor="end")
    for (row, policy, each), spread in zip(found, spreads, strict=True):
        y, x, reach = _TOP + row * _ROW, left + (each.mean - low) * scale, spread * scale
        yield _line([(max(left, x - reach), y), (x + reach, y)], _colour(policy))
        yield f'<circle class="point" cx="{x:.1f}" cy="{y}" r="5" fill="{_colour(policy)}"/>'


def _curves(title: str, curves: dict[str, list[Point]], axes: tuple[str, str]) -> str | None:
    drawn = {policy: points for policy, points in curves.items() if points}
    if not drawn:
        return None
    across = [x for points in drawn.values() for x, _ in points]
    low, high = _STEP * int(min(across) // _STEP), max(*across, 100.0)
    height = _TOP + _PLOT_HEIGHT + _BOTTOM

    def place(point: Point) -> Point:
        x = _LEFT + (point[0] - low) / ((high - low) or 1.0) * _PLOT_WIDTH
        return x, _TOP + (1 - point[1] / 100) * _PLOT_HEIGHT

    parts = [*_head(_WIDTH, height, title), _text(0, 16, title, bold=True)]
    for percent in range(0, 101, 25):
        _, y = place((low, percent))
        parts += [
            _line([(_LEFT, y), (_LEFT + _PLOT_WIDTH, y)], _RULE),
            _text(_LEFT - 8, y + 4, f"{percent}", anchor="end"),
        ]
    for at in range(low, int(high) + 1, _STEP):
        x, y = place((at, 0))
        parts.append(_text(x, y + 18, f"{at}", anchor="middle"))
    parts.append(_text(_LEFT + _PLOT_WIDTH / 2, height - 6, axes[0], anchor="middle"))
    parts.append(_text(_LEFT, _TOP - 10, axes[1], size=11))
    # The product first: its broad line would hide others that run along it.
    for number, (policy, points) in enumerate(sorted(drawn.items(), key=lambda item: item[0] != PRODUCT)):
        colour, y = _colour(policy), _TOP + 14 + number * 22
        width, dash = (3.0 if policy == PRODUCT else 1.6), ("6 3" if policy == OBSERVE else "")
        parts.append(_line([place(point) for point in points], colour, width, dash, series=True))
        x = _LEFT + _PLOT_WIDTH + 24
        parts += [_line([(x, y - 4), (x + 26, y - 4)], colour, width, dash), _text(x + 34, y, NAMES[policy])]
    return _joined(parts)


def _colour(policy: str) -> str:
    return _OURS.get(policy) or _PALETTE[[*NAMES].index(policy) % len(_PALETTE)]


def _head(width: int, height: int, title: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">'
    )
    yield f"<title>{escape(title)}</title>"


def _joined(parts: Sequence[str]) -> str:
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(points: Sequence[Point], colour: str, width: float = 1.6, dash: str = "", *, series: bool = False) -> str:
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    extra = (' class="series"' if series else "") + (f' stroke-dasharray="{dash}"' if dash else "")
    return f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width}"{extra}/>'


def _text(x: float, y: float, words: str, *, size: int = 12, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{_INK}"{weight}>{escape(words)}</text>'
