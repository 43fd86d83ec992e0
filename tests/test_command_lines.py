"""The four commands speak in one manner."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import pytest
from typer.testing import CliRunner

OURS = [script for script in entry_points(group="console_scripts") if script.dist and script.dist.name == "gputopo"]


@pytest.mark.parametrize("script", OURS, ids=lambda script: script.name)
def test_help_is_plain_text_that_begins_with_what_the_command_does(script: EntryPoint) -> None:
    """No boxes: it goes into pipes and pages, too."""
    app = __import__(script.module, fromlist=["app"]).app
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert said.isascii()
    assert said.splitlines()[2].startswith(f"  `{script.name.replace('-', ' ', script.name.startswith('kubectl'))}`: ")
