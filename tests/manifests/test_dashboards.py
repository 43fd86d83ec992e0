"""The dashboards are whole, Prometheus reads their queries, and each query finds the series that our programs tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from agent.gpus.activity import Activity, ClockReason
from agent.metrics import AgentMetrics
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod
from tests.manifests.helm import CHART
from tests.manifests.objects import Json
from tests.manifests.prometheus import run

DASHBOARDS: dict[str, Json] = {
    file.stem: json.loads(file.read_text()) for file in sorted((CHART / "files/dashboards").glob("*.json"))
}
OF_GPUS = sorted(set(DASHBOARDS) - {"gputopo"})
OWN = {"__rate_interval": "5m", "__range": "2h", "node": "node-1", "threshold": "0.05"}
"""What Grafana puts in for a variable."""


def expressions(dashboard: Json) -> list[str]:
    """Return its queries as Prometheus gets them."""
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [re.sub(r"\$(\w+)", lambda name: OWN[name[1]], expression) for expression in found]


def variables(text: str) -> set[str]:
    return set(re.findall(r"\$\{?([a-z]\w*)", text))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_titles_and_places_of_their_own(name: str) -> None:
    """Two on one place would hide each other."""
    panels = DASHBOARDS[name]["panels"]
    for part in ("id", "title"):
        assert len({panel[part] for panel in panels}) == len(panels)
    assert not [pair for pair in combinations((panel["gridPos"] for panel in panels), 2) if overlap(*pair)]
    assert all(place["x"] + place["w"] <= 24 for place in (panel["gridPos"] for panel in panels))


def overlap(one: Json, other: Json) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h"))
    )


def test_dashboards_have_names_and_addresses_of_their_own() -> None:
    """Grafana keeps one of each uid; and its sidecar one of each file, whoever's it is."""
    for part in ("uid", "title"):
        assert len({found[part] for found in DASHBOARDS.values()}) == len(DASHBOARDS)
    assert all(name == found["uid"] for name, found in DASHBOARDS.items())


@pytest.mark.parametrize("name", DASHBOARDS)
def test_variables_are_those_that_are_used(name: str) -> None:
    """And all panels ask the Prometheus that is chosen."""
    found = DASHBOARDS[name]
    defined = {variable["name"] for variable in found["templating"]["list"]}
    used = variables(" ".join(target["expr"] for panel in found["panels"] for target in panel["targets"]))
    assert defined == {"datasource"} | used - {"__rate_interval", "__range"}
    assert {panel["datasource"]["uid"] for panel in found["panels"]} == {"${datasource}"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_legend_names_labels_that_its_query_keeps(name: str) -> None:
    """Another would be shown as nothing."""
    for panel in DASHBOARDS[name]["panels"]:
        for target in panel["targets"]:
            kept = set(
                re.findall(r"\w+", " ".join(re.findall(r"(?:by|group_left|count_values) ?\(([^)]*)\)", target["expr"])))
            )
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, target


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_key_is_one_that_grafana_knows(name: str) -> None:
    """A key that its schema does not have is lost when Grafana's own library reads the dashboard and writes it again."""
    written = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARDS[name])))
    assert list(lost(DASHBOARDS[name], written)) == []


def lost(ours: object, written: object, path: str = "") -> Iterator[str]:
    """Yield the places at which something of ours is not in what was written."""
    if isinstance(ours, dict) and isinstance(written, dict):
        for key, value in ours.items():
            yield from lost(value, written[key], f"{path}.{key}") if key in written else [f"{path}.{key}"]
    elif isinstance(ours, list) and isinstance(written, list) and len(ours) == len(written):
        for number, pair in enumerate(zip(ours, written, strict=True)):
            yield from lost(*pair, f"{path}[{number}]")
    elif ours != written:
        yield f"{path}: {ours!r} became {written!r}"


@pytest.mark.slow
def test_prometheus_reads_every_query(promtool: Path, tmp_path: Path) -> None:
    """As rules, which is how promtool reads expressions."""
    rules = [
        {"record": "x", "expr": expression, "labels": {"n": f"{name}-{number}"}}
        for name, found in DASHBOARDS.items()
        for number, expression in enumerate(expressions(found))
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = run(promtool, "check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


BUSY = Activity(
    uuid="GPU-a", utilization_percent=2, memory_busy_percent=40, memory_total_bytes=80, memory_used_bytes=60,
    memory_reserved_bytes=5, temperature_celsius=61, memory_temperature_celsius=70, power_milliwatts=412500,
    power_limit_milliwatts=700000, energy_millijoules=9000, sm_clock_mhz=1980, memory_clock_mhz=2619,
    clock_reasons=frozenset({ClockReason.HARDWARE_THERMAL}),
    nvlink_sent_kib=2, nvlink_received_kib=3, pcie_sent_bytes=4, pcie_received_bytes=5,
)  # fmt: skip
PODS = [ListedPod("team", "train-0", (ListedContainer("main", frozenset({"GPU-a", "GPU-mig"})),))]
OF_HEALTH = (
    'gputopo_gpu_info{uuid="GPU-a",gpu="0",model="L4",pci="1",node="node-1"}',
    'gputopo_gpu_info{uuid="GPU-mig",gpu="1",model="L4",pci="2",node="node-1"}',
    'gputopo_gpu_health{uuid="GPU-a",state="quarantined",node="node-1"}',
    'gputopo_gpu_recovery_action{uuid="GPU-a",node="node-1"}',
    'gputopo_gpu_xid_errors_total{uuid="GPU-a",xid="74",node="node-1"}',
    'gputopo_gpu_temperature_margin_celsius{uuid="GPU-a",node="node-1"}',
    'gputopo_gpu_ecc_errors_total{uuid="GPU-a",kind="corrected",location="dram",node="node-1"}',
    'gputopo_gpu_nvlink_errors_total{uuid="GPU-a",kind="crc",node="node-1"}',
    'gputopo_gpu_pcie_replays_total{uuid="GPU-a",node="node-1"}',
    'gputopo_gpu_pcie_link_width{uuid="GPU-a",node="node-1"}',
    'gputopo_gpu_fabric_health{uuid="GPU-a",node="node-1"}',
    'gputopo_agent_nvlinks_down{node="node-1"}',
    'gputopo_agent_downgraded_pairs{reason="p2p CNS",node="node-1"}',
    "gputopo_gpus",
    "gputopo_gpus_free",
)


def told() -> Iterator[tuple[str, str]]:
    """Yield the series of a node as they are scraped, with the labels that the chart's PodMonitor adds."""
    metrics = AgentMetrics("0")
    metrics.watch_activity(lambda: [BUSY])
    metrics.watch_holders(lambda: PODS)
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = {"pod": "agent-x", "namespace": "gputopo-system", "node": "node-1"} | sample.labels
            written = ",".join(f'{key}="{value}"' for key, value in labels.items())
            if sample.name.startswith("gputopo_gpu_"):
                yield f"{sample.name}{{{written}}}", "0+60x180" if family.type == "counter" else f"{sample.value}x180"
    yield from ((series, "2+1x180") for series in OF_HEALTH)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_GPUS)
def test_every_query_finds_something(promtool: Path, tmp_path: Path, name: str) -> None:
    """On a node that tells all there is: a label that nothing has would leave a panel empty for ever."""
    given = [{"series": series, "values": values} for series, values in told()]
    asked = [
        {"expr": f"count({expression}) > bool 0", "eval_time": "150m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for expression in expressions(DASHBOARDS[name])
    ]
    file = tmp_path / "queries_test.yaml"
    test = {"interval": "1m", "input_series": given, "promql_expr_test": asked}
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))
    done = run(promtool, "test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
