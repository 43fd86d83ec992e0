"""DCGM exporter's names have its units and labels, by promtool's own word."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.manifests.helm import CHART
from tests.manifests.prometheus import run

NAMES = CHART / "files/dcgm_names.yaml"
TESTS = Path(__file__).parent / "dcgm_names_test.yaml"
RECORDS = [rule["record"] for rule in yaml.safe_load(NAMES.read_text())["groups"][0]["rules"]]

pytestmark = pytest.mark.slow


def complaints(promtool: Path, folder: Path, text: str) -> str:
    """Return what promtool says of the tests; nothing when they pass."""
    (folder / NAMES.name).write_text(text)
    (folder / TESTS.name).write_text(TESTS.read_text())
    done = run(promtool, "test", "rules", folder / TESTS.name)
    return done.stdout + done.stderr if done.returncode else ""


def test_prometheus_reads_the_rules(promtool: Path) -> None:
    """All of them."""
    done = run(promtool, "check", "rules", NAMES)
    assert done.returncode == 0, done.stderr
    assert f"{len(RECORDS)} rules found" in done.stdout


def test_names_units_and_labels_are_dcgm_exporters(promtool: Path, tmp_path: Path) -> None:
    """With holders and without, shared, in the midst of an upgrade, and nothing where the agent does not sample."""
    assert complaints(promtool, tmp_path, NAMES.read_text()) == ""


@pytest.mark.parametrize("record", RECORDS)
def test_a_wrong_figure_is_noticed(promtool: Path, tmp_path: Path, record: str) -> None:
    """Or the test above would show nothing of it."""
    document = yaml.safe_load(NAMES.read_text())
    for rule in document["groups"][0]["rules"]:
        if rule["record"] == record:
            rule["expr"] = f"2 * ({rule['expr']}) + 1"
    assert complaints(promtool, tmp_path, yaml.safe_dump(document))
