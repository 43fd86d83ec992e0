"""What `nvidia-smi` says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element, fromstring

_SECONDS = 60.0
_DOCTYPE = re.compile(r'<!DOCTYPE nvidia_smi_log SYSTEM "[\w.]+">')
_NOTHING = re.compile(
    r"\[?(N/A|Not Supported|Unknown Error|ERR!|Not Found|Requested functionality has been deprecated)\]?"
)


class SmiFailed(Exception):
    """`nvidia-smi` ended with an error, or said what nobody can read."""


def is_here() -> bool:
    """Whether there is such a program."""
    return shutil.which("nvidia-smi") is not None


def works() -> bool:
    """Whether it finds a driver."""
    try:
        return is_here() and bool(said("-L").strip())
    except SmiFailed:
        return False


def said(*arguments: str) -> str:
    """Return what it prints; raises `SmiFailed`."""
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SmiFailed(str(error)) from error
    if done.returncode:
        raise SmiFailed(f"nvidia-smi {' '.join(arguments)}: {done.returncode}, {(done.stderr or done.stdout).strip()}")
    return done.stdout


def query() -> Element:
    """Return all that it says, as `nvidia-smi -q -x` writes it.

    Its document type names a file that is not read. Any other declaration is refused, so there are no entities to expand.
    """
    text = _DOCTYPE.sub("", said("-q", "-x"), count=1)
    if "<!" in text:
        raise SmiFailed("nvidia-smi -q -x declares more than its document type")
    return fromstring(text)


def meant(text: str) -> str | None:
    """Return what a cell says, `None` where it says that it says nothing.

    >>> meant(" 81559 MiB "), meant("[N/A]")
    ('81559 MiB', None)
    """
    return None if _NOTHING.fullmatch(text.strip()) or not text.strip() else text.strip()


def figures(names: Sequence[str]) -> dict[str, Mapping[str, float | None]]:
    """Return UUID → the figures of these names."""
    lines = said(f"--query-gpu=uuid,{','.join(names)}", "--format=csv,noheader,nounits").splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.strip()]
    return {row[0]: {name: _number(cell) for name, cell in zip(names, row[1:], strict=True)} for row in rows}


def processes() -> dict[str, set[int]]:
    """Return UUID → the processes that compute there."""
    lines = said("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader").splitlines()
    found: dict[str, set[int]] = {}
    for line in lines:
        if match := re.fullmatch(r"\s*(\S+),\s*(\d+)\s*", line):
            found.setdefault(match[1], set()).add(int(match[2]))
    return found


def _number(cell: str) -> float | None:
    said_so = meant(cell)
    return None if said_so is None else float(said_so)
