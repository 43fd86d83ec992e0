"""The queries about the extender, and the series that the tests of the alerts speak of, are of series that it really tells."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import tests.extender.features
from extender.features.registry import DECLARATIONS
from extender.telemetry.core import PODS_REFUSED
from extender.telemetry.metrics import Metrics
from tests.extender.telemetry.figures import every_gauge
from tests.manifests.helm import CHART
from tests.manifests.objects import Json
from tests.manifests.prometheus import run

DASHBOARD: Json = next(
    found for file in (CHART / "files").rglob("*.json") if (found := json.loads(file.read_text()))["uid"] == "gputopo"
)
QUERIES: list[str] = [
    target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
    if "gputopo_agent_" not in target["expr"]
]
ALERTS_TEST: Json = yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text())
ADDED_BY_A_SCRAPE = {"namespace", "pod"}

Series = tuple[str, frozenset[tuple[str, str]]]


def told() -> dict[Series, str]:
    """Return each series of an extender with the labels it has, and its values as promtool writes them.

    What a feature observes is shown by the module `figures` of its tests.
    """
    extender = Metrics("digest", DECLARATIONS)
    extender.watch(lambda: every_gauge(3.0))
    extender.watch_labels(PODS_REFUSED, lambda: {"affinity": 2})
    for module in pkgutil.walk_packages(tests.extender.features.__path__, "tests.extender.features."):
        if module.name.endswith(".figures"):
            importlib.import_module(module.name).show(extender)
    return {
        (sample.name, frozenset(sample.labels.items())): values_of(family.type, sample.value)
        for family in text_string_to_metric_families(extender.exposition().decode())
        for sample in family.samples
    }


def values_of(kind: str, value: float) -> str:
    return f"0+{60 * (1 + value)}x180" if kind in {"counter", "histogram"} else f"{value}x180"


def series_of_the_rule_tests() -> Iterator[Series]:
    for test in ALERTS_TEST["tests"]:
        for given in test["input_series"]:
            name, _, labels = given["series"].partition("{")
            pairs = re.findall(r'(\w+)="([^"]*)"', labels)
            yield name, frozenset(pair for pair in pairs if pair[0] not in ADDED_BY_A_SCRAPE)


def test_the_tests_of_the_alerts_speak_of_series_as_the_programs_tell_them() -> None:
    """With these labels: else an alert would fire in its test only. What the build says of itself is another each time."""
    given = {series for series in series_of_the_rule_tests() if not re.match("gputopo_(agent|build)_", series[0])}
    assert given - told().keys() == set()


@pytest.mark.slow
def test_every_query_of_the_extenders_dashboard_finds_something(promtool: Path, tmp_path: Path) -> None:
    """A label that nothing has, or a word that Prometheus does not know, would leave a panel empty for ever."""
    given = [
        {"series": name + "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels)) + "}", "values": values}
        for (name, labels), values in told().items()
    ]
    asked = [
        {
            "expr": f"count({query.replace('$__rate_interval', '5m')}) > bool 0",
            "eval_time": "150m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for query in QUERIES
    ]
    file = tmp_path / "queries_test.yaml"
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))
    done = run(promtool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
