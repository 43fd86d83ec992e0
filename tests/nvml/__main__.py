"""`python -m tests.nvml MACHINE COMMAND…` runs a command on a machine of `machines/`, played by the fake library.

The library is built for the time of the command; the machine's GPUs do what its description says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.nvml.library import FakeNvml, machine


def main(arguments: list[str]) -> int:
    """Return the command's exit status, or 2 for bad usage."""
    if len(arguments) < 2 or not machine(arguments[0]).exists():
        print("usage: python -m tests.nvml MACHINE COMMAND…, MACHINE as in tests/nvml/machines", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gputopo-nvml-") as folder:
        environment = os.environ | FakeNvml(Path(folder)).environment(machine(arguments[0]))
        return subprocess.run(arguments[1:], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
