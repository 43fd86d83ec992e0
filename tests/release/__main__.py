"""`python -m tests.release VERSION` makes a release of the checkout in which it runs.

Numbers, changelog and manifests are written; wheel, chart, kubectl plugin, SBOM, image, notes and checksums are made in
`dist/VERSION`; and then, when all is there, one commit and its tag. Until then nothing is committed: `git checkout .` takes it
back.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.manifests.helm import CHART, HelmRefused, HelmUnavailable, helm
from tests.manifests.rendered import write
from tests.release import plugin
from tests.release.numbers import NoRelease, notes, order, write_number

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 with a release, 1 without."""
    parser = argparse.ArgumentParser("python -m tests.release")
    parser.add_argument("version")
    parser.add_argument("--without-image", action="store_true")
    parser.add_argument(
        "--platform", default="", help="of the image: linux/amd64,linux/arm64; otherwise this machine's"
    )
    parser.add_argument("--archives-at", metavar="URL", default=plugin.URL, help="where krew finds the kubectl plugin")
    parser.add_argument("--home", metavar="URL", default="", help="where people read about it: the manifest's homepage")
    asked = parser.parse_args(arguments)
    version = asked.version
    try:
        platform = None if asked.without_image else asked.platform
        folder = release(version, platform=platform, archives_at=asked.archives_at, home=asked.home)
    except (NoRelease, HelmRefused, HelmUnavailable, plugin.NoArchive) as reason:
        print(f"release: {reason}", file=sys.stderr)
        return 1
    print(f"{folder}: v{version} is committed and tagged here. `git push origin main v{version}` publishes it.")
    return 0


def release(version: str, *, platform: str | None, archives_at: str, home: str) -> Path:
    """Make the release, its image for this platform or, with `None`, not at all; return the folder with what people download."""
    _check(version)
    write_number(ROOT, version, datetime.now(UTC).date())
    write()
    folder = ROOT / "dist" / version
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    _run("uv", "build", "--quiet", "--no-build-isolation", f"--python={sys.executable}", f"--out-dir={folder}")
    (folder / ".gitignore").unlink(missing_ok=True)  # uv's own, for folders that nobody else ignores
    helm("package", CHART, "--destination", folder)
    plugin.make(version, folder, url=archives_at, home=home)
    # The number has changed what .venv was made from, and nothing that is in it.
    _run("make", "--old-file=.venv/bin/.installed", "sbom", f"SBOM_FILE={folder}/gputopo-{version}.cdx.json")
    if platform is not None:
        archive = f"ARCHIVE={folder}/gputopo-{version}-image.tar"
        _run("make", "image", "image-archive", f"PLATFORM={platform}", f"TAG=gputopo:{version}", archive)
    (folder / "NOTES.md").write_text(notes(ROOT, version) + "\n", encoding="utf-8")
    files = sorted(folder.iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
    _git("commit", "--quiet", "--all", f"--message=Release {version}")
    _git("tag", "--annotate", f"v{version}", f"--message=gputopo {version}")
    return folder


def _check(version: str) -> None:
    if changed := _git("status", "--porcelain"):
        raise NoRelease(f"the checkout has changes that are not committed:\n{changed}")
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
