"""`make release` writes a version wherever it stands, and gives people files that belong together."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
import yaml

from tests.manifests.helm import CHART, HelmUnavailable, executable, helm
from tests.release.__main__ import with_home, with_image
from tests.release.numbers import NoRelease, notes, write_development_number, write_number
from tests.release.plugin import PLATFORMS

ROOT = Path(__file__).resolve().parents[2]

CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n\n## [0.1.0] - 2026-01-01\n\nFirst.\n"


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """Give a folder with the files that say the version."""
    (tmp_path / "manifests/chart").mkdir(parents=True)
    for name in ("pyproject.toml", "manifests/chart/Chart.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def test_what_was_unreleased_are_the_notes_of_the_release(numbered: Path) -> None:
    """And the next change finds its place above them."""
    write_number(numbered, "0.2.0", date(2026, 11, 23))
    assert notes(numbered, "0.2.0") == "### Added\n\n- One."
    assert notes(numbered, "0.1.0") == "First."
    assert notes(numbered, "Unreleased") == ""
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-11-23\n\n### Added" in (numbered / "CHANGELOG.md").read_text()


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    """Its kinds of changes come in the same order in each version; what is unreleased comes first, and has notes."""
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert [name for name in versions[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", name)] == []
    for version in versions:
        said = notes(ROOT, version.partition("]")[0].removeprefix("["))
        headings = re.findall(r"^### (.*)$", said, re.MULTILINE)
        assert headings == [kind for kind in kinds if kind in headings], version
    assert notes(ROOT, "Unreleased")


def test_program_and_chart_have_one_number(numbered: Path) -> None:
    """And nothing else changes in their files."""
    before = {name: (numbered / name).read_text() for name in ("pyproject.toml", "manifests/chart/Chart.yaml")}
    write_number(numbered, "77.0.1", date(2026, 11, 23))
    changed = {
        name: [line for line in (numbered / name).read_text().splitlines() if line not in text.splitlines()]
        for name, text in before.items()
    }
    assert changed == {
        "pyproject.toml": ['version = "77.0.1"'],
        "manifests/chart/Chart.yaml": ["version: 77.0.1", "appVersion: 77.0.1"],
    }


def test_commits_before_a_release_have_its_number(numbered: Path) -> None:
    """As Python and images write it, and as Helm does."""
    write_development_number(numbered, "77.0.1")
    assert 'version = "77.0.1.dev0"' in (numbered / "pyproject.toml").read_text().splitlines()
    chart = yaml.safe_load((numbered / "manifests/chart/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("77.0.1-dev.0", "77.0.1.dev0")
    assert (numbered / "CHANGELOG.md").read_text() == CHANGES
    write_number(numbered, "77.0.1", date(2026, 11, 23))
    chart = yaml.safe_load((numbered / "manifests/chart/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == ("77.0.1", "77.0.1")


@pytest.mark.parametrize("version", ["0.2", "0.2.0.dev0", "v0.2.0"])
def test_only_a_release_has_commits_before_it(numbered: Path, version: str) -> None:
    """Nothing is written for what is no version."""
    before = (numbered / "pyproject.toml").read_text()
    with pytest.raises(NoRelease, match="is no version"):
        write_development_number(numbered, version)
    assert (numbered / "pyproject.toml").read_text() == before


@pytest.mark.parametrize(
    ("version", "changes", "reason"),
    [
        ("0.2", CHANGES, "'0.2' is no version"),
        ("v0.2.0", CHANGES, "is no version"),
        ("0.1.0", CHANGES, "there is a 0.1.0 already"),
        ("0.2.0", CHANGES.replace("### Added\n\n- One.\n", ""), "nothing is said under Unreleased"),
    ],
)
def test_what_is_no_release_changes_nothing(numbered: Path, version: str, changes: str, reason: str) -> None:
    """The reason is told before the first file is written."""
    (numbered / "CHANGELOG.md").write_text(changes)
    before = {file: file.read_text() for file in numbered.rglob("*") if file.is_file()}
    with pytest.raises(NoRelease, match=reason):
        write_number(numbered, version, date(2026, 11, 23))
    assert {file: file.read_text() for file in numbered.rglob("*") if file.is_file()} == before


def test_the_chart_that_is_published_names_the_image_that_is_published() -> None:
    """Nothing else of its values changes."""
    text = (CHART / "values.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(with_image(text, "ghcr.io/someone/gputopo"))
    assert after["image"]["repository"] == "ghcr.io/someone/gputopo"
    before["image"]["repository"] = after["image"]["repository"]
    assert after == before


def test_the_chart_that_is_published_names_the_repository_and_the_pages_of_its_version() -> None:
    """Nothing of it is at an address that does not exist."""
    text = with_home((CHART / "Chart.yaml").read_text(), "https://github.com/someone/gputopo", "9.8.7")
    assert "example.com" not in text and "/main/" not in text
    chart = yaml.safe_load(text)
    assert chart["home"] == "https://github.com/someone/gputopo"
    assert chart["icon"] == "https://github.com/someone/gputopo/raw/v9.8.7/docs/images/icon.svg"


def test_values_without_an_empty_repository_are_refused() -> None:
    """A chart that moved the value would be published without its image."""
    with pytest.raises(NoRelease, match=r"image\.repository"):
        with_image('image:\n  repository: "elsewhere"\n', "ghcr.io/someone/gputopo")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Give a clone of this repository as it was committed last, with one change more that the notes tell of."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone of a repository")
    try:
        executable()
    except HelmUnavailable as reason:
        pytest.skip(str(reason))
    try:
        git(ROOT, "clone", "--quiet", str(ROOT), str(tmp_path / "clone"))
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"git does not clone this folder: {refused.stderr.strip()}")
    found = tmp_path / "clone"
    git(found, "config", "user.name", "A. Releaser")
    git(found, "config", "user.email", "releaser@example.org")
    for stub in (ROOT / "agent/kubelet/api").glob("*_pb2*"):
        (found / "agent/kubelet/api" / stub.name).write_bytes(stub.read_bytes())
    (found / ".venv").symlink_to(Path(sys.executable).parent.parent)
    changelog = found / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n- One more.\n", 1))
    git(found, "commit", "--quiet", "--all", "--message=Change one thing more")
    return found


def git(folder: Path, *words: str) -> str:
    """Run git there, and return what it printed."""
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def released(folder: Path, version: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Release from there."""
    command = [
        sys.executable,
        "-m",
        "tests.release",
        version,
        "--without-image",
        "--archives-at=https://dl.example.com",
        *options,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.waits
def test_a_release_is_one_commit_its_tag_and_files_that_belong_together(
    clone: Path, figure: Callable[[str], None]
) -> None:
    """The image is left out here: that it is built is shown in `tests/image`."""
    before = git(clone, "rev-parse", "HEAD").strip()
    done = released(clone, "9.8.7")
    assert done.returncode == 0, done.stderr
    assert git(clone, "rev-parse", "v9.8.7^{commit}", "HEAD~1").split() == [
        git(clone, "rev-parse", "HEAD").strip(),
        before,
    ]
    assert git(clone, "status", "--porcelain") == ""
    folder = clone / "dist" / "9.8.7"
    wheel = "gputopo-9.8.7-py3-none-any.whl"
    names = {
        "NOTES.md",
        "SHA256SUMS",
        wheel,
        "gputopo-9.8.7.tar.gz",
        "gputopo-9.8.7.tgz",
        "gputopo-9.8.7.cdx.json",
        "gputopo-9.8.7.licences.tsv",
    }
    archives = {platform.archive("9.8.7") for platform in PLATFORMS}
    names |= {"gputopo.yaml", *archives}
    assert {file.name for file in folder.iterdir()} == names
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    assert len((folder / "SHA256SUMS").read_text().splitlines()) == len(names) - 1
    plugin = yaml.safe_load((folder / "gputopo.yaml").read_text())["spec"]
    assert plugin["version"] == "v9.8.7"
    assert {platform["uri"] for platform in plugin["platforms"]} == {
        f"https://dl.example.com/{each}" for each in archives
    }
    inside = zipfile.ZipFile(folder / wheel).namelist()
    assert {
        "extender/kubectl/cli.py",
        "agent/serve.py",
        "topology/node/model.py",
        "agent/kubelet/api/podresources_pb2.py",
    } <= {*inside}
    assert not [name for name in inside if name.startswith("tests/")]
    rendered = "\n".join(file.read_text() for file in (clone / "manifests/rendered").rglob("*.yaml"))
    assert ":9.8.7" in rendered
    subprocess.run([sys.executable, "-m", "tests.manifests", "--check"], cwd=clone, check=True)
    sums = (folder / "SHA256SUMS").read_text()
    places = ("--registry=registry.example.org/someone", "--home=https://example.org/someone")
    made_again = released(clone, "9.8.7", "--tagged", *places)
    assert made_again.returncode == 0, made_again.stderr
    differing = set((folder / "SHA256SUMS").read_text().splitlines()) - set(sums.splitlines())
    assert {line.split()[1] for line in differing} == {"gputopo-9.8.7.tgz", "gputopo.yaml"}
    shown = helm("show", "all", folder / "gputopo-9.8.7.tgz")
    assert (
        'repository: "registry.example.org/someone/gputopo"' in shown and "home: https://example.org/someone" in shown
    )
    untagged = released(clone, "9.8.6", "--tagged")
    assert (untagged.returncode, untagged.stderr) == (
        1, "release: the commit that is checked out has no tag v9.8.6\n",
    )  # fmt: skip
    again = released(clone, "9.8.6")
    assert (again.returncode, again.stderr) == (1, "release: 9.8.6 does not come after 9.8.7\n")
    begun = released(clone, "9.9.0", "--next")
    assert (begun.returncode, begun.stdout) == (0, "9.9.0.dev0 is written; commit it.\n"), begun.stderr
    assert "manifests/chart/Chart.yaml" in git(clone, "diff", "--name-only").split()
    git(clone, "checkout", ".")
    (clone / "README.md").write_text("changed")
    changed = released(clone, "9.9.0")
    assert changed.returncode == 1
    assert "README.md" in changed.stderr
    figure(f"a release, but for its image: {sum(file.stat().st_size for file in folder.iterdir()) / 2**20:.1f} MiB")
