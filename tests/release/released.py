"""Versions that were released, as they were: their files come out of the history of this checkout."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
_SUBJECT: Final = re.compile(r"(?P<commit>\w+) Release (?P<version>\d+\.\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Released:
    """One version."""

    version: str
    commit: str

    def unpack(self, folder: Path) -> Path:
        """Write its files into a folder that is not there yet, and return the folder."""
        folder.mkdir(parents=True)
        files = subprocess.run(["git", "archive", self.commit], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", f"--directory={folder}"], input=files, check=True)
        return folder


def released() -> list[Released]:
    """Return all versions, the newest first; none where the checkout came without its history.

    `make release` writes the commits. A clone has them also where nobody fetched its tags.
    """
    said = subprocess.run(
        ["git", "log", "--extended-regexp", "--grep=^Release [0-9]+[.][0-9]+[.][0-9]+$", "--format=%H %s"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = (_SUBJECT.fullmatch(line) for line in said.stdout.splitlines())
    return [Released(each["version"], each["commit"]) for each in found if each]
