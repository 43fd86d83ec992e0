"""Print the picture of `kubectl gputopo why` for the pending pod of the scene: `python -m tests.pictures.why`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.pictures.scene import PENDING, scene
from tests.pictures.terminal import draw

COMMAND = f"kubectl gputopo why {PENDING}"


async def output() -> str:
    """Return what the plugin prints; its exit code 1 says that the pod fits nowhere."""
    with tempfile.TemporaryDirectory(prefix="gputopo-pictures-") as folder:
        async with scene(Path(folder)) as url:
            plugin = Path(sys.executable).with_name("kubectl-gputopo")
            command = [str(plugin), "why", PENDING, "--namespace", "default", "--extender", url]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
    if process.returncode != 1:
        raise SystemExit(f"{COMMAND}: exit code {process.returncode} instead of 1")
    return printed.decode()


if __name__ == "__main__":
    sys.stdout.write(draw(COMMAND, asyncio.run(output())))
