"""Whatever a cluster, a snapshot or a log line says, a terminal shows it and does not obey it."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import structlog
import yaml

import extender.kubectl
import extender.kubectl.cli
from extender.kit import logs
from extender.kubectl import reading
from tests.extender.builders import node
from tests.extender.plugin import invoke

HOSTILE = "\x1b]0;pwned\x07\x1b[31m\x9b31m\x7f\u202e\r\n\u2028"
NAMESPACE = "ml" + HOSTILE
VERBS = (
    ("nodes",),
    ("node", "n1" + HOSTILE),
    ("pod", "waits" + HOSTILE, "-n", NAMESPACE),
    ("pod", "placed" + HOSTILE, "-n", NAMESPACE),
    ("why", "waits" + HOSTILE, "-n", NAMESPACE),
    ("why", "placed" + HOSTILE, "-n", NAMESPACE),
    ("status",),
    ("drift",),
    ("fragmentation",),
    ("replay",),
    ("what-if", "--gpus", "1", "-n", NAMESPACE),
    ("pod", "nobody" + HOSTILE),
    ("node", "nobody" + HOSTILE),
    ("top",),
    ("nodes", "--snapshot", "nobody" + HOSTILE),
)
FORMS = ("wide", "json", "name")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a cluster all of whose names are hostile."""
    annotations = msgspec.to_builtins(node("n1"))["metadata"]["annotations"]

    def pod(name: str, on: str | None = None) -> dict[str, object]:
        container = {"name": "main" + HOSTILE, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        metadata = {"name": name + HOSTILE, "namespace": NAMESPACE, "uid": name, "resourceVersion": "1"}
        spec = {"nodeName": on, "containers": [container]}
        return {
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": "Running" if on else "Pending" + HOSTILE},
        }

    sick = {"type": "GpuThermalWatch", "status": "True", "reason": HOSTILE, "message": HOSTILE}
    hostile = {
        "kind": "Node",
        "metadata": {"name": "n1" + HOSTILE, "uid": "u", "resourceVersion": "1", "annotations": annotations},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, sick]},
    }
    use = {"told": {}, "failed": {"n1" + HOSTILE: HOSTILE}}
    file = tmp_path_factory.mktemp("terminal") / "snapshot.json"
    items = [hostile, pod("waits"), pod("placed", "n1" + HOSTILE)]
    file.write_text(json.dumps({"kind": "List", "use": use, "items": items}))
    return file


@pytest.fixture(autouse=True)
def _by_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what GPUs are worth by formula, which costs nothing."""
    monkeypatch.setattr(reading, "APPRAISE_SECONDS", 0.0)


def obeyed(text: str) -> set[str]:
    """Return the characters that a terminal would obey."""
    return {char for char in text if not char.isprintable()} - {"\n"}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: ascii(" ".join(verb))[:40])
@pytest.mark.parametrize("form", FORMS)
def test_the_plugin_prints_no_character_that_acts(snapshot: Path, verb: tuple[str, ...], form: str) -> None:
    """On standard output and standard error, in every form; no name ends a line either."""
    given = verb if "--snapshot" in verb else (*verb, "--snapshot", str(snapshot))
    ended = invoke(*given, "-o", form)
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    assert ended.stdout + ended.stderr or form == "name"
    assert not obeyed(ended.stdout) and not obeyed(ended.stderr)
    assert not any(line.strip() in {"\u2028", "m"} for line in ended.stdout.splitlines())


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_say_the_same_all_the_same(snapshot: Path, form: str, read: object) -> None:
    """What is written out is what the standard of each language reads again."""
    assert callable(read)
    ended = invoke("pod", "placed" + HOSTILE, "-n", NAMESPACE, "--snapshot", str(snapshot), "-o", form)
    assert read(ended.stdout)["pod"]["name"] == "placed" + HOSTILE


def test_lines_of_the_plugin_are_printed_in_one_place() -> None:
    """A `print` beside it would be one that nobody has thought of."""
    allowed = {"completion.py", "form.py", "following.py", "options.py"}
    files = [Path(extender.kubectl.cli.__file__), *Path(extender.kubectl.__file__).parent.glob("*.py")]
    assert len(files) > 15
    for file in files:
        calls = [each.func for each in ast.walk(ast.parse(file.read_text())) if isinstance(each, ast.Call)]
        printing = any(isinstance(call, ast.Name) and call.id == "print" for call in calls)
        assert printing == (file.name in allowed), file.name


@pytest.mark.parametrize("style", ["json", "text"])
def test_no_log_line_acts(style: Literal["json", "text"]) -> None:
    """Messages, facts and traces alike; agent and extender log the same way."""
    written = io.BytesIO()
    try:
        logs.start("info", style, written)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            structlog.get_logger("x").exception("failed " + HOSTILE, reason=HOSTILE, pods=[HOSTILE])
    finally:
        structlog.reset_defaults()
    text = written.getvalue().decode()
    assert "pwned" in text and not obeyed(text)
