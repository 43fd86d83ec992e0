"""The workflows of `.github` are valid, run what people run, and have no more rights than they need."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_group

from extender.kubectl.cli import app
from tests.cluster.go_build import BinariesUnavailable
from tests.release.actions import ACTIONLINT

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
STEPS = [*WORKFLOWS, *sorted(GITHUB.glob("actions/*/action.yml"))]


def read(file: Path) -> dict[str, Any]:
    """Read a workflow."""
    document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return document


def lint(*files: Path) -> subprocess.CompletedProcess[str]:
    """Run actionlint; without the linters of shell and Python that a machine may or may not have."""
    try:
        program = ACTIONLINT.find_or_build(print) / "actionlint"
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))
    command: list[str | Path] = [program, "-no-color", "-shellcheck=", "-pyflakes=", *files]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.waits
def test_actionlint_accepts_the_workflows(tmp_path: Path) -> None:
    """It refuses one of them with a job that needs a job which does not exist."""
    accepted = lint(*WORKFLOWS)
    assert (accepted.returncode, accepted.stdout) == (0, "")
    broken = tmp_path / "broken.yml"
    broken.write_text(
        WORKFLOWS[0].read_text(encoding="utf-8").replace("    runs-on:", "    needs: nothing\n    runs-on:")
    )
    refused = lint(broken)
    assert refused.returncode == 1
    assert "nothing" in refused.stdout


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_only_jobs_have_rights(file: Path) -> None:
    """The workflow grants none, and each job names its own and a limit of time."""
    workflow = read(file)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        assert job["timeout-minutes"] <= 180, name


@pytest.mark.parametrize("file", STEPS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_actions_of_others_are_pinned_by_commit(file: Path) -> None:
    """A tag can be moved; the comment names the version for Renovate and for people."""
    pinned = re.compile(r"[\w.-]+(?:/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    for use in re.findall(r"uses: (.*)", file.read_text(encoding="utf-8")):
        assert use.startswith("./") or pinned.fullmatch(use), use


def test_make_targets_of_workflows_exist() -> None:
    """A workflow runs what people run."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for file in WORKFLOWS for name in re.findall(r"\bmake ([a-z-]+)", file.read_text(encoding="utf-8"))}
    assert {"lint", "verify", "docs", "test"} <= named <= targets


def test_tests_on_pull_requests_are_a_part_of_ci() -> None:
    """So that a merge finds nothing new to run first."""
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    named = re.findall(r"run: make ([a-z-]+)", (GITHUB / "workflows/pull-request.yml").read_text(encoding="utf-8"))
    assert [name for name in named if f"make {name}" not in ci and f"tier {name} " not in ci] == []


def test_a_report_asks_for_what_answers_it() -> None:
    """The commands exist, and each form has what GitHub requires."""
    commands = set(get_group(app).commands)
    for name in ("bug", "feature"):
        text = (GITHUB / f"ISSUE_TEMPLATE/{name}.yml").read_text(encoding="utf-8")
        asked = set(re.findall(r"`kubectl gputopo ([a-z-]+)", text))
        assert {"snapshot", "status"} <= asked <= commands
        form = read(GITHUB / f"ISSUE_TEMPLATE/{name}.yml")
        assert form["name"] and form["description"]
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(field["attributes"]["label"] for field in fields)
