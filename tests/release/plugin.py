"""Makes what krew installs: an archive of `kubectl gputopo` for each platform, and the manifest that names them.

The plugin is Python with compiled libraries. An archive holds them for each Python that is supported, side by side: their file
names say for which. Everything is pinned by hash in `requirements-kubectl.lock`.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from filecmp import cmp
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER: Final = ROOT / "manifests/krew"
LOCK: Final = ROOT / "requirements-kubectl.lock"
UV: Final = Path(sysconfig.get_path("scripts")) / "uv"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PROGRAMS: Final = ("kubectl-gputopo", "kubectl_complete-gputopo")
OURS: Final = ("extender", "topology")
"""The packages that the plugin imports."""
URL: Final = "https://example.com/gputopo"
"""Where the archives can be had, unless somebody says where they put them."""
_CAVEATS: Final = """\
It needs CPython 3.11, 3.12, 3.13 or 3.14 on the PATH, or in $GPUTOPO_PYTHON.
For the Tab key, link kubectl_complete-gputopo of the plugin's folder into a folder of the PATH, too.
"""


class NoArchive(Exception):
    """An archive cannot be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A kind of machine, as krew and as uv call it."""

    os: str
    arch: str
    uv: str

    def archive(self, version: str) -> str:
        """Return the archive's file name."""
        return f"kubectl-gputopo-{version}-{self.os}-{self.arch}.tar.gz"


PLATFORMS: Final = (
    Platform("linux", "amd64", "x86_64-manylinux_2_28"),
    Platform("linux", "arm64", "aarch64-manylinux_2_28"),
    Platform("darwin", "amd64", "x86_64-apple-darwin"),
    Platform("darwin", "arm64", "aarch64-apple-darwin"),
)


def make(version: str, folder: Path, platforms: Iterable[Platform] = PLATFORMS, url: str = URL, home: str = "") -> Path:
    """Write an archive of this checkout for each platform, and the manifest; returns the manifest."""
    archives: dict[Platform, Path] = {}
    for platform in platforms:
        archives[platform] = folder / platform.archive(version)
        with TemporaryDirectory(dir=folder) as name:
            _fill(Path(name), platform)
            _name(Path(name) / "lib", version)
            _pack(Path(name), archives[platform])
    written = folder / "gputopo.yaml"  # krew wants it to be called as the plugin
    written.write_text(yaml.safe_dump(manifest(archives, version, url, home), sort_keys=False), encoding="utf-8")
    return written


def manifest(archives: Mapping[Platform, Path], version: str, url: str, home: str = "") -> dict[str, Any]:
    """Say what krew has to know; `home` is where people read about the plugin, if anywhere."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
            "uri": f"{url}/{archive.name}",
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
            "bin": PROGRAMS[0],
        }
        for platform, archive in archives.items()
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "gputopo"},
        "spec": {
            "version": f"v{version}",
            **({"homepage": home} if home else {}),
            "shortDescription": "Show who has which GPUs, and why a pod waits",
            "description": "Shows GPUs and their links, who holds them, why a pod fits nowhere and what would help.\n",
            "caveats": _CAVEATS,
            "platforms": platforms,
        },
    }


def _fill(folder: Path, platform: Platform) -> None:
    """Lay out what an archive holds."""
    library = folder / "lib"
    for python in PYTHONS:
        with TemporaryDirectory(dir=folder) as name:
            _install(Path(name), platform, python)
            _merge(Path(name), library)
    for package in OURS:
        copytree(ROOT / package, library / package, ignore=_unwanted)
    launcher = (LAUNCHER / "launcher.sh").read_bytes()
    for program in PROGRAMS:
        (folder / program).write_bytes(launcher)
        (folder / program).chmod(0o755)
    for file in (LAUNCHER / "fits.py", LAUNCHER / "run.py", ROOT / "LICENSE"):
        (folder / file.name).write_bytes(file.read_bytes())


def _name(library: Path, version: str) -> None:
    """Write what `--version` reads; our packages are copied, and pip has not installed them."""
    told = library / f"gputopo-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: gputopo\nVersion: {version}\n", encoding="utf-8")


def _install(folder: Path, platform: Platform, python: str) -> None:
    """Unpack the pinned wheels for one platform and one Python, whichever Python and machine this is."""
    pinned = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "-r", str(LOCK)]
    chosen = ["--python-platform", platform.uv, "--python-version", python, "--python", sys.executable]
    command = [str(UV), "pip", "install", "--quiet", "--target", str(folder), *chosen, *pinned]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoArchive(f"{platform.os}/{platform.arch}, Python {python}: {done.stderr.strip()}")


def _merge(one: Path, library: Path) -> None:
    """Add what another Python needs; a file that two of them need and that differs would serve one of them wrongly.

    Most files are the same for all of them: uv links each from its cache, so they need not be read.
    """

    def add(source: str, target: str) -> None:
        if not Path(target).exists():
            os.link(source, target)
        elif ".dist-info" not in target and not (Path(source).samefile(target) or cmp(source, target, shallow=False)):
            raise NoArchive(f"{Path(source).relative_to(one)} is not the same for all of Python {', '.join(PYTHONS)}")

    copytree(one, library, dirs_exist_ok=True, ignore=_unwanted, copy_function=add)


def _unwanted(folder: str, names: list[str]) -> set[str]:
    """Leave out tests, programs of others, and the calls that the client generates, as in the image."""
    calls = "kubernetes" in folder and folder.endswith("client/api")
    return {
        name
        for name in names
        if name in ("tests", "bin", "__pycache__", ".lock") or (calls and name.endswith("_api.py"))
    }


def _pack(folder: Path, archive: Path) -> None:
    """Write the archive: equal bytes for equal files, whenever and by whomever it is made."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as tar,
    ):
        for each in sorted(folder.iterdir()):
            tar.add(each, each.name, filter=anonymous)
