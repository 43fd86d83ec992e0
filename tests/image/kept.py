"""The image as an archive in the user's cache, for those who come back to it: built when something in it has changed."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from benchmarks.processes.kube_binaries import cache
from tests.image import base
from tests.image.builder import TOOLS, Builder

_IN_IT = (
    "agent",
    "benchmarks",
    "extender",
    "topology",
    "Containerfile",
    "pyproject.toml",
    "requirements-*.lock",
    "*.py",
)


class ImageUnavailable(Exception):
    """The image cannot be built here; the text says why in one line."""


def find_or_build(announce: Callable[[str], None], name: str, source: Path = base.ROOT) -> Path:
    """Return an archive of the image under that name, as container runtimes import it; raises `ImageUnavailable`.

    `source` is the checkout that it is made from.
    """
    archive = _place(name, source)
    if not archive.exists():
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise ImageUnavailable(f"the image is built with {' and '.join(TOOLS)}: no {' and no '.join(missing)} here")
        announce(f"building the image (once, two minutes) into {archive}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                _build(Builder(Path(folder), source), name)
            except subprocess.CalledProcessError as error:
                raise ImageUnavailable(f"neither a registry nor Debian's packages are in reach: {error}") from error
    return archive


def keep(builder: Builder, name: str) -> None:
    """Keep an image that was built just now, in the place of all of that name that were kept before."""
    archive = _place(name, builder.source)
    archive.parent.mkdir(parents=True, exist_ok=True)
    for older in archive.parent.glob("*"):
        older.unlink()
    unfinished = archive.with_suffix(".unfinished")
    builder.save(name, unfinished)
    unfinished.rename(archive)


def _place(name: str, source: Path) -> Path:
    digest = sha256(name.encode())
    for file in _files(source):
        digest.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return cache() / "image" / name.rpartition(":")[2] / f"{digest.hexdigest()[:16]}.tar"


def _files(source: Path) -> Iterator[Path]:
    for pattern in _IN_IT:
        for found in sorted(source.glob(pattern)):
            inside = [found] if found.is_file() else sorted(found.rglob("*"))
            yield from (file for file in inside if file.is_file() and "__pycache__" not in file.parts)


def _build(builder: Builder, name: str) -> None:
    try:
        builder.get_base()
        builder.make_image(name)
        keep(builder, name)
    finally:
        builder.clean()
