"""The cgroups of a node's containers: below one directory of its own in every hierarchy, which outlives its processes.

The directory is named after the process that runs the tests, so that what a killed run has left can be told from what is in use.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "gputopo-test-"


def cgroup_of(node: str) -> str:
    """Return the path, in every hierarchy, below which this node's containers are."""
    return f"/{_PREFIX}{os.getpid()}-{node}"


def make(node: str) -> None:
    """Make it, for a kubelet that has cgroups for pods: it asks for its root to be there."""
    for hierarchy in hierarchies():
        (hierarchy / cgroup_of(node)[1:]).mkdir(exist_ok=True)


def hierarchies() -> list[Path]:
    """Return where cgroups are: one folder with v2, one for each controller with v1."""
    v2 = (ROOT / "cgroup.controllers").exists()
    return [ROOT] if v2 else [each for each in ROOT.iterdir() if (each / "cgroup.procs").exists()]


def v2() -> Path | None:
    """Return where cgroup v2 is on this machine, alone or beside v1."""
    places = (ROOT, ROOT / "unified")
    return next((each for each in places if (each / "cgroup.controllers").exists()), None)


def remove(node: str) -> None:
    """Remove what is left of a node that runs no more, and of the nodes of runs that were killed."""
    for found in _ours():
        owner = found.name.removeprefix(_PREFIX).partition("-")[0]
        if found.name == cgroup_of(node)[1:] or not Path("/proc", owner).exists():
            _remove(found)


def _ours() -> Iterator[Path]:
    yield from ROOT.glob(f"{_PREFIX}*")
    yield from ROOT.glob(f"*/{_PREFIX}*")


def _remove(folder: Path) -> None:
    with suppress(OSError):  # in use after all, or gone already
        for child in folder.iterdir():
            if child.is_dir():
                _remove(child)
        folder.rmdir()
