"""The Kubernetes programs are built once per user, whole or not at all, and their absence has a reason."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.processes.kube_binaries import OVERRIDE
from tests.cluster.binaries import PROGRAMS, VERSION, cache_folder, find_or_build, kubernetes_version, wanted
from tests.cluster.go_build import BinariesUnavailable, GoBuild

BUILDS = """#!{python}
import pathlib, sys
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).touch(mode=0o755)
with open("{tally}", "a") as tally:
    tally.write("built\\n")
"""
FAILS = """#!{python}
import sys
sys.exit("go: downloading\\ngo: no route to the proxy")
"""


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give each test a user who has neither a cache nor programs of their own, and only what `install_go` adds."""
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.delenv(VERSION, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def install_go(folder: Path, script: str) -> Path:
    """Write a `go` that runs `script`, and return the file in which it tallies its builds."""
    go, tally = folder / "bin" / "go", folder / "tally"
    go.parent.mkdir()
    go.write_text(script.format(python=sys.executable, tally=tally))
    go.chmod(0o755)
    return tally


def test_two_runs_at_once_build_once(tmp_path: Path) -> None:
    """The second waits for the first and takes its result; a later run finds it too."""
    tally = install_go(tmp_path, BUILDS)
    with ThreadPoolExecutor(2) as pool:
        folders = set(pool.map(lambda _: find_or_build(), range(2)))
    assert folders == {find_or_build()} == {cache_folder()}
    assert tally.read_text() == "built\n"


def test_every_program_is_an_executable_of_its_name(tmp_path: Path) -> None:
    """One binary stands behind all six names."""
    install_go(tmp_path, BUILDS)
    folder = find_or_build()
    assert all(os.access(folder / program, os.X_OK) for program in PROGRAMS)


def test_failed_build_gives_its_last_words_and_leaves_nothing(tmp_path: Path) -> None:
    """Half a build is never found by the next run."""
    install_go(tmp_path, FAILS)
    with pytest.raises(BinariesUnavailable, match=r"no route to the proxy$"):
        find_or_build()
    assert [left.suffix for left in cache_folder().parent.iterdir()] == [".lock"]


def test_the_key_of_the_cache_covers_what_is_added_to_the_programs(tmp_path: Path) -> None:
    """A build to which nothing is added keeps its key."""
    (tmp_path / "go.mod").touch()
    (tmp_path / "go.sum").touch()
    script = tmp_path / "script.py"
    plain = GoBuild(tmp_path, "any", packages=(), flags=(), announcement="")
    finished = replace(plain, finished_by=(script,))
    keys = list[str]()
    for text in ("ADDED = ()", "ADDED = ('crds',)"):
        script.write_text(text)
        keys += [plain.folder().name, finished.folder().name]
    assert (keys[0], len({*keys})) == (keys[2], 3)


def test_without_go_the_reason_says_what_is_missing() -> None:
    """The text is what a skipped test shows."""
    with pytest.raises(BinariesUnavailable, match=f"no Go .* and {OVERRIDE} is not set"):
        find_or_build()


def test_ready_made_folder_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With `GPUTOPO_KUBE_BIN` nothing is built, not even looked for."""
    for program in PROGRAMS:
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv(OVERRIDE, str(tmp_path))
    assert find_or_build() == tmp_path


def test_ready_made_folder_without_the_programs_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wrong setting is named, never skipped over."""
    monkeypatch.setenv(OVERRIDE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}: etcd is not an executable file"):
        find_or_build()


def test_the_oldest_supported_version_is_a_build_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other pins, another folder: neither version takes the other's place."""
    newest = cache_folder()
    monkeypatch.setenv(VERSION, "1.30")
    assert cache_folder() != newest
    assert kubernetes_version(wanted()).startswith("v1.30.")


def test_a_version_that_is_not_pinned_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, with those that there are."""
    monkeypatch.setenv(VERSION, "1.29")
    with pytest.raises(FileNotFoundError, match=r"GPUTOPO_KUBE_VERSION=1.29: .* beside the newest there is 1.30"):
        find_or_build()
