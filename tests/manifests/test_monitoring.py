"""Alerts, dashboards and DCGM exporter's names speak of metrics that our programs have; alerts say what to do."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from agent import metrics as agent_metrics
from extender.features.registry import DECLARATIONS
from extender.telemetry.core import PODS_REFUSED
from extender.telemetry.metrics import Metrics
from tests.extender.telemetry.figures import every_gauge
from tests.manifests.helm import CHART
from tests.manifests.objects import Json
from tests.manifests.rendered import FOLDER, MONITORING

RULES: list[Json] = [
    rule for group in yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
NAMES: list[Json] = yaml.safe_load((CHART / "files/dcgm_names.yaml").read_text())["groups"][0]["rules"]
DASHBOARDS: dict[str, Json] = {
    file.name: json.loads(file.read_text()) for file in sorted((CHART / "files/dashboards").glob("*.json"))
}
EXPRESSIONS = {
    *(rule["expr"] for rule in [*RULES, *NAMES]),
    *(target["expr"] for found in DASHBOARDS.values() for panel in found["panels"] for target in panel["targets"]),
}
PARTS_OF_A_HISTOGRAM = ("_bucket", "_sum", "_count")


def exposed() -> Iterator[str]:
    """Yield the names of all series that extender and agent can have."""
    extender = Metrics("digest", DECLARATIONS)
    extender.watch(lambda: every_gauge(0.0))
    extender.watch_labels(PODS_REFUSED, dict)
    agent = agent_metrics.AgentMetrics("0")
    agent.watch(list)
    agent.watch_activity(list)
    agent.watch_holders(list)
    texts = (extender.exposition(), agent.text())
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", "".join(text.decode() for text in texts), re.MULTILINE):
        yield from (name + part for part in PARTS_OF_A_HISTOGRAM) if kind == "histogram" else [name]


@pytest.mark.parametrize("expression", sorted(EXPRESSIONS))
def test_every_metric_in_an_expression_exists(expression: str) -> None:
    """A name that nothing exposes would be an alert that never fires, or an empty panel."""
    recorded = {rule["record"] for rule in NAMES}
    named = set(re.findall(r"\w+:\w+:\w+|gputopo_\w+", expression))
    assert named
    assert named <= {*exposed(), *recorded}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_waits_and_says_what_to_do(rule: Json) -> None:
    """What has happened, and after it where to look or what to change."""
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    happened, *advice = re.split(r"[.;] ", rule["annotations"]["summary"])
    assert happened and advice


def test_each_alert_has_a_name_of_its_own() -> None:
    """By it people know it."""
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)


def test_the_overlay_carries_exactly_these_and_scrapes_the_ports_that_the_pods_declare() -> None:
    """For Prometheus Operator and Grafana's sidecar; the base has none of it."""
    monitor, rule, dashboards = (
        next(
            found for found in yaml.safe_load_all((MONITORING / "monitoring.yaml").read_text()) if found["kind"] == kind
        )
        for kind in ("PodMonitor", "PrometheusRule", "ConfigMap")
    )
    assert [rule for group in rule["spec"]["groups"] for rule in group["rules"]] == RULES
    assert {name: json.loads(text) for name, text in dashboards["data"].items()} == DASHBOARDS
    base = "".join(file.read_text() for file in FOLDER.glob("*.yaml"))
    assert all(
        f"name: {endpoint['port']}, containerPort" in base for endpoint in monitor["spec"]["podMetricsEndpoints"]
    )
    assert "monitoring.coreos.com" not in base
