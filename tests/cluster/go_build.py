"""Builds programs of one Go module once per user, and says where they are.

- The module's `go.mod` and `go.sum`, or another such pair beside them, pin everything; the cache key is a hash of
  what the build reads, and of the files that say what is added to the programs.
- Nothing is written into the checkout; a folder in the cache is either whole or absent.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes.kube_binaries import cache

_NO_DEBUG_INFORMATION = "-gcflags=all=-dwarf=false"
"""The linker of all our builds drops it (`-s -w`). To make it takes an eighth of a build's CPU time."""


class BinariesUnavailable(Exception):
    """The programs are not here and cannot be built here; the text says why in one line."""


@dataclass(frozen=True, slots=True)
class GoBuild:
    """Main packages of one module, built with one set of flags."""

    module: Path
    name: str
    """Of the folder in the cache that holds all versions."""
    packages: tuple[str, ...]
    flags: tuple[str, ...]
    announcement: str
    """What is built and how long that takes, for the person who waits."""
    cgo: bool = False
    output: str = ""
    """The program's file name, for a single package; else each is called as its package."""
    otherwise: str = ""
    """How one does without the compiler, for the reason that says there is none."""
    pins: str = "go"
    """The name of the module's `.mod` and `.sum` files that count; the flags have to say so too where it is not `go`."""
    finished_by: tuple[Path, ...] = ()
    """Files that decide what `finish` adds to the folder."""

    def folder(self) -> Path:
        """Return the folder that `find_or_build` fills, whether or not it exists yet."""
        digest = hashlib.sha256("\0".join(self.flags).encode())
        pins = (self.module / f"{self.pins}.mod", self.module / f"{self.pins}.sum")
        for file in (*pins, *sorted(self.module.rglob("*.go")), *self.finished_by):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return cache() / self.name / digest.hexdigest()[:16]

    def find_or_build(self, announce: Callable[[str], None], finish: Callable[[Path], None] = lambda _: None) -> Path:
        """Return the folder with the programs; two runs at once build only once, and the second waits.

        Args:
            announce: told in one line that a build begins.
            finish: given the new folder before anybody can see it.

        Raises:
            BinariesUnavailable: there is no Go here (or no C compiler where one is needed), or it could not build.

        """
        folder = self.folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                with _whole_or_absent(folder) as unfinished:
                    self._build(unfinished, folder, announce)
                    finish(unfinished)
        return folder

    def _build(self, unfinished: Path, folder: Path, announce: Callable[[str], None]) -> None:
        go = shutil.which("go")
        if go is None:
            raise BinariesUnavailable(f"no Go to build {self.announcement}{self.otherwise}")
        if self.cgo and shutil.which("gcc") is None:
            raise BinariesUnavailable(f"no gcc to build {self.announcement}{self.otherwise}")
        announce(f"building {self.announcement} into {folder}")
        build = subprocess.run(
            [go, "build", _NO_DEBUG_INFORMATION, *self.flags, "-o", f"{unfinished}/{self.output}", *self.packages],
            cwd=self.module,
            env={**os.environ, "CGO_ENABLED": str(int(self.cgo)), "GOWORK": "off", "GOFLAGS": ""},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if build.returncode != 0:
            last_line = (build.stderr.strip() or f"exit status {build.returncode}").splitlines()[-1]
            raise BinariesUnavailable(f"go build in {self.module} failed: {last_line}")


@contextmanager
def _whole_or_absent(folder: Path) -> Iterator[Path]:
    """Lend an empty folder that becomes `folder` when the block ends well, and vanishes when it does not."""
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    try:
        yield unfinished
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    unfinished.rename(folder)
