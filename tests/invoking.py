"""A command of ours called in this process: the same arguments, output and exit code, without a second of imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has said, by the names that `subprocess` gives it."""

    returncode: int
    stdout: str
    stderr: str


def call(app: Any, *arguments: str, text: str | None = None, **environment: str | None) -> Done:
    """Run a command to its end, with that text on standard input; an environment variable that is `None` is not there.

    Raises whatever the command does not catch itself: here, too, a traceback is no exit code 1.
    """
    result = CliRunner().invoke(app, arguments, text, environment, catch_exceptions=False)
    return Done(result.exit_code, result.stdout, result.stderr)
