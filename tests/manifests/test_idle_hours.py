"""Idle GPU-hours by namespace are what the dashboard says they are, by promtool's own word on its own queries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.manifests.prometheus import run
from tests.manifests.test_dashboards import DASHBOARDS, expressions

pytestmark = pytest.mark.slow

BY_TITLE = dict(
    zip(
        [panel["title"] for panel in DASHBOARDS["gputopo-idle"]["panels"]],
        expressions(DASHBOARDS["gputopo-idle"]),
        strict=True,
    )
)
IDLE, HELD = BY_TITLE["Idle GPU-hours by namespace"], BY_TITLE["Held GPU-hours by namespace"]
SHARE = BY_TITLE["Share of the held GPU-hours that was idle"]
PODS = BY_TITLE["The twenty pods with the most idle GPU-hours"]
NOW = BY_TITLE["GPUs held and idle"]
UNKNOWN = BY_TITLE["GPUs held whose utilisation nobody knows"]
AT = "3h"
"""The queries look at two hours, so at what is from the sixtieth minute on."""


def holder(uuid: str, namespace: str, pod: str = "p", values: str = "1x180") -> tuple[str, str]:
    return f'gputopo_gpu_holder_info{{uuid="{uuid}",namespace="{namespace}",pod="{pod}",container="main"}}', values


def use(uuid: str, values: str, agent: str = "agent-x") -> tuple[str, str]:
    return f'gputopo_gpu_utilization_ratio{{uuid="{uuid}",namespace="gputopo-system",pod="{agent}"}}', values


CASES: Mapping[str, tuple[str, list[tuple[str, str]], dict[str, float]]] = {
    "a GPU that is held and never used is idle all the time": (
        IDLE,
        [holder("a", "team"), use("a", "0x180")],
        {'{namespace="team"}': 2},
    ),
    "one that is used is idle for no time, and is told so": (
        IDLE,
        [holder("a", "team"), use("a", "0.9x180")],
        {'{namespace="team"}': 0},
    ),
    "the threshold itself is use": (IDLE, [holder("a", "team"), use("a", "0.05x180")], {'{namespace="team"}': 0}),
    "of half of the time the half counts": (
        IDLE,
        [holder("a", "team"), use("a", "0.9x120 0x60")],
        {'{namespace="team"}': 1},
    ),
    "a job that pauses for a minute in five is not idle": (
        IDLE,
        [holder("a", "team"), use("a", "0 0.9 0.9 0.9 0.9 " * 36)],
        {'{namespace="team"}': 0},
    ),
    "GPUs of a namespace add up": (
        IDLE,
        [holder("a", "team"), holder("b", "team"), holder("c", "else"), *(use(gpu, "0x180") for gpu in "abc")],
        {'{namespace="team"}': 4, '{namespace="else"}': 2},
    ),
    "what nobody holds is nobody's": (IDLE, [use("a", "0x180")], {}),
    "a GPU that several share counts once, in equal parts": (
        IDLE,
        [holder("a", "team"), holder("a", "else"), use("a", "0x180")],
        {'{namespace="team"}': 1, '{namespace="else"}': 1},
    ),
    "a GPU that changes hands counts for each as long as it had it": (
        IDLE,
        [
            holder("a", "team", values="1x90 _x90"),
            holder("a", "else", values="_x91 1x89"),
            use("a", "0x180"),
        ],
        {'{namespace="team"}': 0.5, '{namespace="else"}': 1.5},
    ),
    "two agents of one node, while one replaces the other, count once": (
        IDLE,
        [holder("a", "team"), use("a", "0.03x180"), use("a", "0.03x180", "agent-y")],
        {'{namespace="team"}': 2},
    ),
    "where the use is not known, no hour is idle, and none counts as held": (IDLE, [holder("a", "team")], {}),
    "... of the held hours": (
        HELD,
        [holder("a", "team"), holder("b", "team"), use("b", "0x180")],
        {'{namespace="team"}': 2},
    ),
    "... and such GPUs are told apart": (
        UNKNOWN,
        [holder("a", "team"), holder("b", "team"), holder("c", "team"), use("c", "0x180")],
        {'{namespace="team"}': 2},
    ),
    "the share is of the hours held": (
        SHARE,
        [holder("a", "team"), holder("b", "team"), use("a", "0x180"), use("b", "0.9x120 0x60")],
        {'{namespace="team"}': 0.75},
    ),
    "each pod has its own": (
        PODS,
        [holder("a", "team", "one"), holder("b", "team", "two"), use("a", "0x180"), use("b", "0.9x180")],
        {'{namespace="team",pod="one"}': 2, '{namespace="team",pod="two"}': 0},
    ),
    "now is now": (NOW, [holder("a", "team"), use("a", "0.9x170 0x10")], {'{namespace="team"}': 1}),
}


def complaints(promtool: Path, folder: Path, changed: tuple[str, str] = ("", "")) -> str:
    """Return what promtool says of the cases, with the queries changed; nothing when they hold."""
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in given],
            "promql_expr_test": [
                {
                    "expr": query.replace(*changed) if changed[0] else query,
                    "eval_time": AT,
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in expected.items()],
                }
            ],
        }
        for name, (query, given, expected) in CASES.items()
    ]
    file = folder / "idle_test.yaml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [], "evaluation_interval": "1m", "fuzzy_compare": True, "tests": tests}, sort_keys=False
        )
    )
    done = run(promtool, "test", "rules", file)
    return done.stdout + done.stderr if done.returncode else ""


def test_idle_hours_are_counted_right(promtool: Path, tmp_path: Path) -> None:
    """Used, unused, half used, shared, handed over, twice told, not known."""
    assert complaints(promtool, tmp_path) == ""


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("< bool", "<= bool"),
        (
            " / on (uuid) group_left () count by (uuid) (max by (uuid, namespace, pod, container) (gputopo_gpu_holder_info))",
            "",
        ),
        ("max by (uuid) (avg_over_time(", "sum by (uuid) (avg_over_time("),
        ("avg_over_time(gputopo_gpu_utilization_ratio[5m])", "gputopo_gpu_utilization_ratio"),
        ("* 5 / 60", "/ 60"),
        (":5m]", ":1m]"),
        ("unless", "and"),
        ("by (namespace, pod)", "by (namespace)"),
    ],
)
def test_a_wrong_query_is_noticed(promtool: Path, tmp_path: Path, part: str, instead: str) -> None:
    """Each part of it does something."""
    assert any(part in query for query, _, _ in CASES.values())
    assert complaints(promtool, tmp_path, (part, instead))
