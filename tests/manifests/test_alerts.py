"""Each alert fires when it should and is silent when it should be, by promtool's own word; and its page says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.manifests.helm import CHART, helm
from tests.manifests.objects import Json
from tests.manifests.prometheus import run
from tests.manifests.rendered import NAMESPACE

HERE = Path(__file__).parent
ALERTS = CHART / "files/alerts.yaml"
PAGE = CHART.parents[1] / "docs/how-to/monitor.md"


def rules(text: str) -> list[Json]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


NAMES = [rule["alert"] for rule in rules(ALERTS.read_text())]


def without_words(folder: Path, text: str) -> Path:
    """Write the rules without what people read, which the tests would only repeat, beside the tests of them."""
    document = yaml.safe_load(text)
    for group in document["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "alerts.yaml").write_text(yaml.safe_dump(document))
    tests = folder / "alerts_test.yaml"
    tests.write_text((HERE / "alerts_test.yaml").read_text())
    return tests


@pytest.mark.slow
def test_prometheus_reads_the_rules(promtool: Path) -> None:
    """Expressions and templates."""
    done = run(promtool, "check", "rules", ALERTS)
    assert done.returncode == 0, done.stderr
    assert f"{len(NAMES)} rules found" in done.stdout


@pytest.mark.slow
def test_alerts_fire_when_they_should_and_only_then(promtool: Path, tmp_path: Path) -> None:
    """In a cluster without an extender, a healthy one, one with what passes soon, and one where all is wrong."""
    done = run(promtool, "test", "rules", without_words(tmp_path, ALERTS.read_text()))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_alert_that_never_fires_is_noticed(promtool: Path, tmp_path: Path, name: str) -> None:
    """Or the test above would show nothing of it."""
    document = yaml.safe_load(ALERTS.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            if rule["alert"] == name:
                rule["expr"] = "vector(1) > 2"
    done = run(promtool, "test", "rules", without_words(tmp_path, yaml.safe_dump(document)))
    assert done.returncode != 0
    assert f"alertname: {name}," in done.stdout + done.stderr


def test_each_alert_has_its_place_on_the_page() -> None:
    """With what it means and what to do, in the order of the rules."""
    page = PAGE.read_text()
    assert re.findall(r"^### (Gputopo\w+)$", page, re.MULTILINE) == NAMES
    for part in re.split(r"^### Gputopo\w+$", page, flags=re.MULTILINE)[1:]:
        assert "**It means**" in part
        assert "**Do**" in part


@pytest.mark.slow
@pytest.mark.usefixtures("helm_is_here")
@pytest.mark.parametrize("base", ["https://docs.example.com/gputopo", "https://docs.example.com/gputopo/"])
def test_alerts_link_their_runbooks_where_the_pages_are_served(base: str) -> None:
    """At the heading of the alert; without `monitoring.runbooks` there is no link."""
    shown = (
        "template",
        "gputopo",
        CHART,
        "--namespace",
        NAMESPACE,
        "--set",
        "image.repository=x,monitoring.enabled=true",
    )
    where = ("--show-only", "templates/monitoring/prometheusrule.yaml")
    plain, linked = helm(*shown, *where), helm(*shown, *where, "--set", f"monitoring.runbooks={base}")
    assert "runbook_url" not in plain
    links = [rule["annotations"]["runbook_url"] for rule in rules(yaml.safe_dump(yaml.safe_load(linked)["spec"]))]
    assert links == [f"https://docs.example.com/gputopo/how-to/monitor/#{name.lower()}" for name in NAMES]
