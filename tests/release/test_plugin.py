"""What krew's archives hold: the plugin for each Python and each platform, and nothing that is for another."""

import platform
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.release.plugin import (
    LAUNCHER,
    OURS,
    PLATFORMS,
    PYTHONS,
    URL,
    NoArchive,
    Platform,
    _fill,
    _merge,
    _name,
    _pack,
    manifest,
)

ELF, MACH_O, FAT_MACH_O = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"
ARCHITECTURES = {0x3E: "amd64", 0xB7: "arm64", 0x01000007: "amd64", 0x0100000C: "arm64"}
"""What libraries call them, of Linux and of Darwin."""


def serves(library: Path) -> set[tuple[str, str]]:
    """Return the platforms that a compiled library is for, as it says itself."""
    head = library.read_bytes()[:128]
    if head.startswith(ELF):
        return {("linux", ARCHITECTURES[int.from_bytes(head[18:20], "little")])}
    if head.startswith(MACH_O):
        return {("darwin", ARCHITECTURES[int.from_bytes(head[4:8], "little")])}
    assert head.startswith(FAT_MACH_O)
    count = int.from_bytes(head[4:8], "big")
    types = (int.from_bytes(head[at : at + 4], "big") for at in range(8, 8 + 20 * count, 20))
    return {("darwin", ARCHITECTURES[each]) for each in types}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLATFORMS, ids=lambda each: f"{each.os}-{each.arch}")
def test_an_archive_has_each_library_for_each_python(tmp_path: Path, kind: Platform) -> None:
    """Of its own platform, as the first bytes say; and krew, which takes only files and folders, can unpack it."""
    _fill(tmp_path, kind)
    assert not [each for each in tmp_path.rglob("*") if each.is_symlink()]
    libraries = {each.relative_to(tmp_path).as_posix(): serves(each) for each in tmp_path.rglob("*.so")}
    names = {name.partition(".")[0] for name in libraries}
    assert {"lib/msgspec/_core", "lib/pydantic_core/_pydantic_core"} < names
    for python in PYTHONS:
        tag = f".cpython-{python.replace('.', '')}-"
        assert {name.partition(".")[0] for name in libraries if tag in name} == names
    assert [name for name, platforms in libraries.items() if (kind.os, kind.arch) not in platforms] == []


def test_files_that_differ_between_pythons_make_no_archive(tmp_path: Path) -> None:
    """One of them would be served to the wrong Python."""
    for python, text in (("3.11", "one"), ("3.12", "two")):
        (tmp_path / python / "package").mkdir(parents=True)
        (tmp_path / python / "package/module.py").write_text(text)
    _merge(tmp_path / "3.11", tmp_path / "lib")
    with pytest.raises(NoArchive, match=r"package/module.py is not the same"):
        _merge(tmp_path / "3.12", tmp_path / "lib")


def test_the_manifest_has_a_homepage_where_there_is_one(tmp_path: Path) -> None:
    """It is asked for at the release, as is the place of the archives: the checkout knows of neither."""
    archive = tmp_path / "archive"
    archive.write_bytes(b"")
    with_home, without = (manifest({PLATFORMS[0]: archive}, "1.0.0", URL, home)["spec"] for home in ("https://a", ""))
    assert with_home["homepage"] == "https://a"
    assert "homepage" not in without


def test_an_archive_knows_its_version(tmp_path: Path) -> None:
    """`kubectl gputopo --version` reads it as of a package that pip has installed."""
    _name(tmp_path, "9.8.7")
    assert [(each.name, each.version) for each in distributions(path=[str(tmp_path)])] == [("gputopo", "9.8.7")]


def test_an_archive_of_the_same_files_has_the_same_bytes(tmp_path: Path) -> None:
    """Whoever doubts the hash in the manifest can make it again."""
    for name in ("a", "b"):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "lib/module.py").write_text("pass")
        _pack(tmp_path / name, tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def unpacked(folder: Path, suffix: str) -> Path:
    """Lay out an archive with a program that says with what it was run, and a library for Pythons of that suffix."""
    (folder / "lib/msgspec").mkdir(parents=True)
    (folder / f"lib/msgspec/_core{suffix}").touch()
    (folder / "fits.py").write_bytes((LAUNCHER / "fits.py").read_bytes())
    (folder / "run.py").write_text("import sys; print(sys.version_info[:2], sys.argv[1:])")
    (folder / "kubectl-gputopo").write_bytes((LAUNCHER / "launcher.sh").read_bytes())
    (folder / "kubectl-gputopo").chmod(0o755)
    return folder / "kubectl-gputopo"


OWN = f".cpython-{sys.version_info[0]}{sys.version_info[1]}-{platform.machine()}-linux-gnu.so"


@pytest.mark.skipif(sys.platform != "linux", reason="names libraries as Linux does")
def test_the_launcher_is_found_by_whichever_link(tmp_path: Path) -> None:
    """Krew links it, and people link the link; what stands after it comes through as it was."""
    launcher = unpacked(tmp_path / "store with a space", OWN)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl-gputopo").symlink_to(launcher)
    (tmp_path / "linked").symlink_to("bin/kubectl-gputopo")
    done = subprocess.run(
        [tmp_path / "linked", "pod", "a b", ""],
        env={"PATH": "/usr/bin:/bin", "GPUTOPO_PYTHON": sys.executable}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"{sys.version_info[:2]} ['kubectl-gputopo', 'pod', 'a b', '']\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names libraries as Linux does")
def test_without_a_python_that_fits_people_are_told_what_would(tmp_path: Path) -> None:
    """And not what Python says of a module that it lacks."""
    launcher = unpacked(tmp_path / "store", ".cpython-310-darwin.so")
    done = subprocess.run([launcher, "nodes"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("kubectl gputopo: no CPython 3.11, 3.12, 3.13 or 3.14 is on the PATH")


@pytest.mark.slow
def test_only_our_packages_that_the_plugin_imports_are_in_it() -> None:
    """The agent and the benchmarks need more libraries than there are."""
    asked = "import sys, extender.kubectl.cli, extender.kubectl.completion\n"
    asked += "print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"agent", "benchmarks", "extender", "topology"} == set(OURS)
