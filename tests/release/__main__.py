"""`python -m tests.release VERSION` makes a release of the checkout in which it runs.

Numbers, changelog and manifests are written; wheel, chart, kubectl plugin, SBOM, image, notes and checksums are made in
`dist/VERSION`; and then, when all is there, one commit and its tag. Until then nothing is committed: `git checkout .` takes it
back. With `--tagged` only the files are made, of a commit that has the tag already. With `--next` only numbers and manifests
are written: those of the commits before that release.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Final

from tests.manifests.__main__ import main as manifests
from tests.manifests.helm import CHART, HelmRefused, HelmUnavailable, helm
from tests.release import plugin
from tests.release.numbers import NoRelease, notes, order, write_development_number, write_number

ROOT = Path(__file__).resolve().parents[2]
_REPOSITORY: Final = re.compile(r'^(image:\n(?: +#.*\n)* +repository: )""$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Places:
    """Where people will find what is released."""

    archives: str = plugin.URL
    """The folder of krew's archives."""
    home: str = ""
    """The repository, by its address at GitHub or a server with the same paths."""
    registry: str = ""
    """Of the image; without it the chart's users say where they pushed one."""


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 with a release, 1 without."""
    parser = argparse.ArgumentParser("python -m tests.release")
    parser.add_argument("version")
    parser.add_argument("--without-image", action="store_true")
    parser.add_argument(
        "--platform", default="", help="of the image: linux/amd64,linux/arm64; otherwise this machine's"
    )
    parser.add_argument("--archives-at", metavar="URL", default=plugin.URL, help="where krew finds the kubectl plugin")
    parser.add_argument(
        "--home", metavar="URL", default="", help="the repository: homepage of krew's manifest and chart"
    )
    parser.add_argument("--registry", metavar="HOST/PATH", default="", help="of the image, for the packaged chart")
    parser.add_argument("--tagged", action="store_true", help="only make the files, of the commit that has the tag")
    parser.add_argument("--next", action="store_true", help="only let the commits before this release have its number")
    asked = parser.parse_args(arguments)
    version = asked.version
    places = Places(asked.archives_at, asked.home, asked.registry)
    try:
        if asked.next:
            _check(version)
            write_development_number(ROOT, version)
            _write_manifests()
            print(f"{version}.dev0 is written; commit it.")
            return 0
        platform = None if asked.without_image else asked.platform
        folder = (files_of_tag if asked.tagged else release)(version, platform, places)
    except (NoRelease, HelmRefused, HelmUnavailable, plugin.NoArchive) as reason:
        print(f"release: {reason}", file=sys.stderr)
        return 1
    if asked.tagged:
        print(f"{folder}: the files of v{version}")
    else:
        print(f"{folder}: v{version} is committed and tagged here. `git push origin main v{version}` publishes it.")
    return 0


def release(version: str, platform: str | None, places: Places) -> Path:
    """Make the release, its image for this platform or, with `None`, not at all; return the folder with what people download."""
    _check(version)
    write_number(ROOT, version, datetime.now(UTC).date())
    _write_manifests()
    folder = _make_files(version, platform, places)
    _git("commit", "--quiet", "--all", f"--message=Release {version}")
    _git("tag", "--annotate", f"v{version}", f"--message=gputopo {version}")
    return folder


def files_of_tag(version: str, platform: str | None, places: Places) -> Path:
    """Make the files of a release whose commit and tag are there, as the workflow of releases does."""
    order(version)
    _refuse_changes()
    if f"v{version}" not in _git("tag", "--points-at", "HEAD").split():
        raise NoRelease(f"the commit that is checked out has no tag v{version}")
    if not notes(ROOT, version):
        raise NoRelease(f"the tag v{version} is on a commit that `make release` did not write: no notes")
    return _make_files(version, platform, places)


def _make_files(version: str, platform: str | None, places: Places) -> Path:
    folder = ROOT / "dist" / version
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    _run("uv", "build", "--quiet", "--no-build-isolation", f"--python={sys.executable}", f"--out-dir={folder}")
    (folder / ".gitignore").unlink(missing_ok=True)  # uv's own, for folders that nobody else ignores
    _package_chart(folder, version, places)
    plugin.make(version, folder, url=places.archives, home=places.home)
    # The number has changed what .venv was made from, and nothing that is in it.
    for target, variable, suffix in (("sbom", "SBOM_FILE", "cdx.json"), ("licences", "LICENCES", "licences.tsv")):
        _run("make", "--old-file=.venv/bin/.installed", target, f"{variable}={folder}/gputopo-{version}.{suffix}")
    if platform is not None:
        archive = f"ARCHIVE={folder}/gputopo-{version}-image.tar"
        _run("make", "image", "image-archive", f"PLATFORM={platform}", f"TAG=gputopo:{version}", archive)
    (folder / "NOTES.md").write_text(notes(ROOT, version) + "\n", encoding="utf-8")
    files = sorted(folder.iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return folder


def _package_chart(folder: Path, version: str, places: Places) -> None:
    """Package the chart; it names the image that is published, and the pages of its version, where these places are given."""
    with TemporaryDirectory() as name:
        chart = copytree(CHART, Path(name) / "chart")
        if places.registry:
            _change(chart / "values.yaml", lambda text: with_image(text, f"{places.registry}/gputopo"))
        if places.home:
            _change(chart / "Chart.yaml", lambda text: with_home(text, places.home, version))
        helm("package", chart, "--destination", folder)


def _change(file: Path, change: Callable[[str], str]) -> None:
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")


def with_image(values: str, repository: str) -> str:
    """Write the default of `image.repository` into the text of a values file."""
    changed, count = _REPOSITORY.subn(lambda match: f'{match[1]}"{repository}"', values)
    if count != 1:
        raise NoRelease("values.yaml: image.repository is not the empty string")
    return changed


def with_home(chart: str, home: str, version: str) -> str:
    """Write a repository's address, and the tag of a version, into the text of a Chart.yaml."""
    return chart.replace("/main/docs/", f"/v{version}/docs/").replace(plugin.URL, home)


def _write_manifests() -> None:
    if manifests([]) != 0:
        raise NoRelease("manifests and tables were not written")


def _refuse_changes() -> None:
    if changed := _git("status", "--porcelain"):
        raise NoRelease(f"the checkout has changes that are not committed:\n{changed}")


def _check(version: str) -> None:
    _refuse_changes()
    released = [tag.removeprefix("v") for tag in _git("tag", "--list", "v*").split()]
    if later := [each for each in released if order(each) >= order(version)]:
        raise NoRelease(f"{version} does not come after {max(later, key=order)}")


def _git(*words: str) -> str:
    return _run("git", *words).strip()


def _run(*words: str) -> str:
    """Run a program of this virtual environment, or of the machine."""
    own = Path(sys.executable).parent / words[0]
    program = str(own) if own.exists() else words[0]
    ended = subprocess.run([program, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise NoRelease(f"{' '.join(words)} failed: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
