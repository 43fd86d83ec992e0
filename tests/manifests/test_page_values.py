"""Pages name values that the chart has, and the chart takes what their commands and examples set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from agent.config import AgentConfiguration
from extender.features.configuration import WholeConfiguration
from tests.manifests.helm import CHART, MANIFESTS, helm
from tests.manifests.readme import WHOLE
from tests.manifests.test_pages import COMMANDS, Command

PAGES = sorted((MANIFESTS.parent / "docs").rglob("*.md"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SECTIONS = {name for name, value in VALUES.items() if isinstance(value, dict)}
SETTINGS: dict[str, type[BaseModel]] = {"extender": WholeConfiguration, "agent": AgentConfiguration}
RELEASES = [command for command in COMMANDS if command.line.startswith(("helm install ", "helm upgrade "))]


def named(text: str) -> list[str]:
    """Return what a page calls a value: in backticks, and in a section of the chart's values; `.*` stands for all below."""
    quoted = re.findall(r"`([a-z][\w.-]*?)(?:[:=] ?[^`]*|\.\*|\.)?`", text)
    values = [path for path in quoted if "." in path and path.partition(".")[0] in SECTIONS]
    return [path for path in values if not path.endswith(".gputopo.dev")]  # DeviceClasses


def exists(path: str) -> bool:
    """Whether the chart has this value, or a program this setting: `policies` is a section of both."""
    names = path.split(".")
    return is_value(names) or any(is_setting(configuration, names) for configuration in SETTINGS.values())


def is_value(names: list[str]) -> bool:
    """Whether the chart has it; what is in a map that Kubernetes or a program reads is that one's."""
    value: Any = VALUES
    for depth, name in enumerate(names):
        if names[depth - 1 : depth] == ["config"]:
            return is_setting(SETTINGS[names[0]], names[depth:])
        if set(names[:depth]) & WHOLE:
            return True
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def is_setting(section: type[BaseModel], names: list[str]) -> bool:
    """Whether a configuration has it; below a map or a list the reader chooses the names."""
    fields = {field.alias or name: field for name, field in section.model_fields.items()}
    if names[0] not in fields:
        return False
    default = fields[names[0]].get_default(call_default_factory=True)
    if len(names) == 1:
        return True
    if isinstance(default, BaseModel):
        return is_setting(type(default), names[1:])
    return isinstance(default, Mapping | list | tuple)


def examples() -> Iterator[Any]:
    """Yield the values that pages show as YAML."""
    for page in PAGES:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for document in yaml.safe_load_all(block):
                if isinstance(document, dict) and document.keys() <= VALUES.keys():
                    yield pytest.param(document, id=f"{page.name}: {'.'.join(path_of(document))}")


def path_of(document: Any) -> Iterator[str]:
    """Yield the names of the first value."""
    while isinstance(document, dict) and document:
        name, document = next(iter(document.items()))
        yield str(name)


def rendered(*options: str | Path) -> str:
    """Return what Helm makes of the chart; raises where the schema refuses a value."""
    return helm("template", "x", CHART, "-n", "x", "--kube-version", "v1.37.2", "--set", "image.repository=x", *options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_values_that_exist(page: Path) -> None:
    """Those of the chart and the settings of both programs."""
    assert [path for path in named(page.read_text()) if not exists(path)] == []


@pytest.mark.parametrize(
    "path",
    [
        "agent.nowhere",
        "extender.config.scheduling.nowhere",
        "extender.config.agents.silence.nowhere",
        "scheduler.image.nowhere",
    ],
)
def test_a_value_that_does_not_exist_is_noticed(path: str) -> None:
    """On each level."""
    assert named(f"Set `{path}: 1`, or `{path}.*`.") == [path, path]
    assert not exists(path)


@pytest.mark.slow
@pytest.mark.usefixtures("helm_is_here")
@pytest.mark.parametrize("command", RELEASES, ids=str)
def test_the_chart_takes_what_a_command_sets(command: Command) -> None:
    """Each value by itself and all of them together."""
    options = [word for pair in pairwise(command.pipeline[0]) if pair[0] in {"--set", "--set-string"} for word in pair]
    assert "kind: DaemonSet" in rendered(*options)


@pytest.mark.usefixtures("helm_is_here")
@pytest.mark.parametrize("values", [*examples()])
def test_the_chart_takes_what_an_example_sets(values: Any, tmp_path: Path) -> None:
    """As a file of values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    assert "kind: DaemonSet" in rendered("--values", file)
