"""The four commands speak in one manner."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

COMPLETION = "kubectl_complete-gputopo"
"""Is called by kubectl, and typed by nobody."""
BEHIND = {"extender.__main__": "extender.web.command"}
"""Which module has the command line, where a script's own imports it late."""
OURS = [
    script
    for script in entry_points(group="console_scripts")
    if script.dist and script.dist.name == "gputopo" and script.name != COMPLETION
]


@pytest.mark.parametrize("script", OURS, ids=lambda script: script.name)
def test_help_is_plain_text_that_begins_with_what_the_command_does(script: EntryPoint) -> None:
    """No boxes: it goes into pipes and pages, too."""
    said = CliRunner().invoke(app_of(script), ["--help"]).stdout
    assert said.isascii()
    assert said.splitlines()[2].startswith(f"  `{script.name.replace('-', ' ', script.name.startswith('kubectl'))}`: ")


@pytest.mark.parametrize("script", OURS, ids=lambda script: script.name)
def test_every_option_is_explained_by_a_sentence(script: EntryPoint) -> None:
    """As the options are that the library adds."""
    told = list(helps(get_command(app_of(script))))
    assert told
    assert [help_ for help_ in told if help_[0].islower() or not help_.endswith(".")] == []


@pytest.mark.parametrize("script", OURS, ids=lambda script: script.name)
def test_each_command_is_described_in_fifty_letters(script: EntryPoint) -> None:
    """The list of commands cuts none of them off."""
    for name, command in getattr(get_command(app_of(script)), "commands", {}).items():
        described = command.get_short_help_str(1000)
        assert len(described) <= 50, (name, described)
        assert described.endswith("."), (name, described)


@pytest.mark.parametrize("name", ["kubectl-gputopo", "gputopo-bench"])
def test_commands_stand_under_headings(name: str) -> None:
    """Each of them once, in columns of one width."""
    (script,) = (script for script in OURS if script.name == name)
    command: Any = get_command(app_of(script))
    shown = CliRunner().invoke(app_of(script), ["--help"]).stdout.partition("Options:")[2].split("\n\n")[1:]
    listed = [line.split()[0] for part in shown for line in part.strip().splitlines()[1:]]
    assert sorted(listed) == sorted(command.commands)
    assert len(shown) > 2
    assert (
        len({len(line) - len(line[2:].partition(" ")[2].lstrip()) for part in shown for line in part.splitlines()[1:]})
        == 1
    )


@pytest.mark.parametrize("script", OURS, ids=lambda script: script.name)
def test_each_command_says_its_version(script: EntryPoint) -> None:
    """As people who report something are asked for it."""
    said = CliRunner().invoke(app_of(script), ["--version"])
    assert (said.exit_code, said.stdout) == (0, f"{version('gputopo')}\n")


def app_of(script: EntryPoint) -> Any:
    """Return the command line that a script runs."""
    return import_module(BEHIND.get(script.module, script.module)).app


def helps(command: Any) -> Iterator[str]:
    """Yield the help of each option of a command, and of those below it."""
    yield from (found for parameter in command.params if (found := getattr(parameter, "help", None)))
    for below in getattr(command, "commands", {}).values():
        yield from helps(below)
