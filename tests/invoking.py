"""Commands of ours, called in this process where the process is not what is tested: that saves a second of imports each."""

from __future__ import annotations

import subprocess
import sys
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


def run(module: str, *arguments: str, text: str | None = None) -> Done:
    """Run a command to its end as a program of its own."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)
