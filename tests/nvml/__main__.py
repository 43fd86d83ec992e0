"""`python -m tests.nvml MACHINE [--script SCRIPT] COMMAND…` runs a command on a machine that the fake library plays.

The library is built for the time of the command; the machine's GPUs do what its description in `machines/` says, and from then
on what a script of `scripts/` has happen to them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.nvml.library import HERE, FakeNvml, machine
from tests.nvml.script import Scripted


def main(arguments: list[str]) -> int:
    """Return the command's exit status, or 2 for bad usage."""
    text: Path | None = None
    match arguments:
        case [name, "--script", script, *command]:
            text = HERE / "scripts" / f"{script}.script"
        case [name, *command]:
            pass
        case _:
            name, command = "", []
    if not (command and machine(name).exists() and (text is None or text.exists())):
        print(
            "usage: python -m tests.nvml MACHINE [--script SCRIPT] COMMAND…, as in tests/nvml/machines and scripts",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="gputopo-nvml-") as folder:
        description = machine(name)
        if text:
            description = Path(shutil.copy(description, folder))
            Scripted(description, text.read_text()).begin()
        environment = os.environ | FakeNvml(Path(folder)).environment(description)
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
