"""axe-core finds what people with a screen reader or a keyboard would stumble over; one pinned file, from npm's registry."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from base64 import b64encode
from hashlib import sha512
from pathlib import Path

VERSION = "4.10.3"
INTEGRITY = "sha512-Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="


class AxeUnavailable(Exception):
    """It cannot be had here."""


def source(folder: Path) -> str:
    """Return the script; raises `AxeUnavailable` without npm or its registry, and `ValueError` for another file."""
    npm = shutil.which("npm")
    if npm is None:
        raise AxeUnavailable("npm is not installed")
    command = [npm, "pack", f"axe-core@{VERSION}", "--pack-destination", str(folder), "--silent"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    except (subprocess.SubprocessError, OSError) as error:
        raise AxeUnavailable(f"npm cannot fetch axe-core {VERSION}: {error}") from error
    archive = folder / f"axe-core-{VERSION}.tgz"
    found = "sha512-" + b64encode(sha512(archive.read_bytes()).digest()).decode()
    if found != INTEGRITY:
        raise ValueError(f"axe-core {VERSION} has {found}")
    with tarfile.open(archive) as files:
        member = files.extractfile("package/axe.min.js")
        assert member
        return member.read().decode()
