"""Where the programs of a real Kubernetes control plane are: a folder that somebody names, or one built earlier."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
CONTROLLERS = "kube-controller-manager"
"""Is needed by few measurements."""
OVERRIDE = "GPUTOPO_KUBE_BIN"
"""The environment variable that names a folder with ready-made programs."""


class BinariesMissing(Exception):
    """There are no programs to run; the text says where they were looked for."""


def find_binaries(named: Path | None) -> Path:
    """Return a folder with all of `PROGRAMS`: the one that is named, else the newest Kubernetes in the user's cache.

    Raises `BinariesMissing`.
    """
    if named is not None:
        if absent := _absent(named):
            raise BinariesMissing(f"{named}: {absent[0]} is not an executable file there")
        return named.resolve()
    kube = cache() / "kube"
    built = [folder for folder in kube.glob("*/") if not _absent(folder)]
    if not built:
        raise BinariesMissing(
            f"no {', '.join(PROGRAMS)} in {kube}: name their folder with --kube-bin or {OVERRIDE}, or build them in a "
            "checkout with `python -m tests.cluster.binaries` (Go, five minutes)"
        )
    return max(built, key=lambda folder: (version_numbers(kubernetes_version(folder)), folder))


def check_controllers(folder: Path) -> None:
    """Raise `BinariesMissing` unless the folder has controllers."""
    if not os.access(folder / CONTROLLERS, os.X_OK):
        raise BinariesMissing(f"{folder}: {CONTROLLERS} is not an executable file there")


def cache() -> Path:
    """Return the folder of the user's cache below which each set of built programs has a folder, with one for each version."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gputopo"


def kubernetes_version(folder: Path) -> str:
    """Return what the scheduler there calls itself, such as `v1.37.2`."""
    command = [str(folder / "kube-scheduler"), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603 - what was named
    return printed.split()[-1] if printed.split() else "unknown"


def version_numbers(version: str) -> list[int]:
    """Return the numbers of a version in order, to compare them with another one's.

    >>> version_numbers("v1.37.2")
    [1, 37, 2]
    """
    return [int(number) for number in re.findall(r"\d+", version)]


def _absent(folder: Path) -> list[str]:
    return [program for program in PROGRAMS if not os.access(folder / program, os.X_OK)]
