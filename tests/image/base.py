"""The base of the image for machines that reach Debian's packages and no image registry: Debian with Python."""

import fcntl
import re
import shutil
import subprocess
from pathlib import Path

from benchmarks.processes.kube_binaries import cache

ROOT = Path(__file__).resolve().parents[2]
NAME = re.search(r"^ARG PYTHON=(\S+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)[1]  # type: ignore[index]
"""What the Containerfile builds on: `…/python:3.11-slim-bookworm`."""
RELEASE = NAME.rpartition("-")[2]


def make() -> Path:
    """Return an archive of the base's files, which the first call makes (two minutes) and later ones find in the user's cache.

    Raises `subprocess.CalledProcessError`, with what debootstrap said, where Debian's packages are out of reach.
    """
    archive = cache() / "image-base" / f"{RELEASE}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            files, unfinished = archive.with_suffix(".files"), archive.with_suffix(".unfinished")
            shutil.rmtree(files, ignore_errors=True)
            try:
                _bootstrap(files)
                subprocess.run(["tar", "-C", files, "-cf", unfinished, "."], check=True)
                unfinished.rename(archive)
            finally:
                shutil.rmtree(files, ignore_errors=True)
    return archive


def _bootstrap(files: Path) -> None:
    packages = "--include=python3,python3-venv,ca-certificates"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, RELEASE, str(files)], check=True, stdout=subprocess.DEVNULL
    )
    (files / "usr/bin/python").symlink_to("python3")
    for leftover in (*(files / "var/cache/apt/archives").glob("*.deb"), *(files / "var/lib/apt/lists").glob("*_*")):
        leftover.unlink()
