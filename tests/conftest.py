"""What the whole suite shares: options, where real data lies, golden files, and the figures that tests have measured."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import tempfile
from collections.abc import Callable, Generator, Set
from functools import cache
from itertools import compress, product
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from tests.waiting import patience

# How long an example takes says something about the machine, and nothing about the claim.
hypothesis.settings.register_profile("gputopo", deadline=None, print_blob=True)
hypothesis.settings.load_profile("gputopo")

pytest_plugins = ["tests.image.building"]

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"

_SECONDS_TO_END = 60.0
"""What threads have left to come to their end in when all tests are done."""

_SLACK = 5.0
"""So many times as long may things take on a machine that runs other tests beside."""

_WITH_PROGRAMS = ("process", "cluster")
"""Folders of tests that start programs and wait for them."""

FIRST = (
    "tests/agent/scripted/",
    "tests/cluster/karpenter/",
    "tests/cluster/nodes/",
    "tests/cluster/test_scheduler_benchmark.py",
    "tests/image/",
    "tests/installed/",
    "tests/process/",
    "tests/release/",
    "tests/security/hostile/",
)
"""What takes minutes in `make test-waits`: it begins first, or one worker would still run it while the others are idle."""

_OF_THE_IMAGE = ("tests/image/", "tests/installed/")
"""Folders whose tests run in one process of `make test-waits`: they share an image that takes minutes to build."""

_FIGURES = pytest.StashKey[list[str]]()
_MARKS = ("slow", "waits", "alone", "gpu", "cluster")
"""Those that decide in which tier a test runs."""
_OF_TIERS = re.compile(rf"(\b(and|or|not|{'|'.join(_MARKS)})\b ?)+")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shared",
        type=Path,
        default=Path(os.environ.get("GPUTOPO_SHARED", ROOT.parent / "shared")),
        help="folder with real topologies and measurements (default: $GPUTOPO_SHARED, else ../shared)",
    )
    parser.addoption(
        "--long", action="store_true", help="run as many rounds, kills and seeds as the catalogue asks for"
    )
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """Let kubectl and Helm remember nothing of a control plane whose port another one has had: by default they do for hours."""
    folder = tempfile.TemporaryDirectory(prefix="gputopo-kube-cache-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ["KUBECACHEDIR"] = folder.name


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which a tier runs nothing: in each worker that takes longer than most tests."""
    expression: str = config.option.markexpr
    if not _OF_TIERS.fullmatch(expression) or collection_path.suffix != ".py":
        return None
    every = ({name: name in marks for name in _MARKS} for marks in _possible_marks(collection_path))
    return None if any(eval(expression, {}, marks) for marks in every) else True


@cache
def _possible_marks(file: Path) -> frozenset[frozenset[str]]:
    """Return all sets of `_MARKS` that a test of a file can have: of those that it names, or a conftest.py of its folders.

    Where programs run, helpers give the mark `cluster`.
    """
    texts = (file, *(folder / "conftest.py" for folder in file.parents if ROOT / "tests" in folder.parents))
    words = {word for text in texts if text.exists() for word in re.findall(r"\bmark\.(\w+)", text.read_text())}
    if _folder(file) in _WITH_PROGRAMS:
        words.add("cluster")
    named = [name for name in _MARKS if name in words]
    subsets = (frozenset(compress(named, chosen)) for chosen in product((False, True), repeat=len(named)))
    return frozenset(subset | _given_marks(file, subset) for subset in subsets)


def _given_marks(file: Path, named: Set[str]) -> frozenset[str]:
    """Return the marks that a test gets here, besides those that are named."""
    waits = "cluster" in named or _folder(file) in _WITH_PROGRAMS
    given = {"waits": waits, "slow": waits or not named.isdisjoint(("waits", "alone"))}
    return frozenset(compress(given, given.values())) - named


@cache
def _folder(file: Path) -> str:
    """Return the folder directly in `tests` that a file is in."""
    return file.relative_to(ROOT / "tests").parts[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while modules are imported, and never among them: they stay, and looking takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test its tier, and see that no tier would leave its file out."""
    named = {mark.name for mark in item.iter_markers()}.intersection(_MARKS)
    given = _given_marks(item.path, named)
    for name in given:
        item.add_marker(name)
    if named | given not in _possible_marks(item.path):
        raise pytest.UsageError(f"{item.nodeid} has marks that neither its file nor a conftest.py of its folders names")


class _ByFileOrImage(LoadFileScheduling):
    """`--dist loadfile`, but files that share an image go to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "the image" if file.startswith(_OF_THE_IMAGE) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Share tests out so; other ways of `--dist` stay what they are."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # the order is that of `pytest_collection_modifyitems`
    return _ByFileOrImage(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what takes minutes begin first; the rest stays in its order."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.fixture(scope="session")
def shared_dir(request: pytest.FixtureRequest) -> Path:
    """Give the folder of real data; tests that need it are skipped where it is not."""
    folder: Path = request.config.getoption("--shared")
    if not (folder / "topologies").is_dir():
        pytest.skip(f"no real data at {folder} (set --shared or GPUTOPO_SHARED)")
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name, or write it under `--update-golden`."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; look, then run pytest --update-golden"

    return compare


@pytest.fixture(scope="session")
def rounds(pytestconfig: pytest.Config) -> Callable[[int, int], int]:
    """Return what chooses between the number of rounds for every day and that of the long form (`--long`)."""
    is_long: bool = pytestconfig.getoption("--long")
    return lambda short, long: long if is_long else short


@pytest.fixture(scope="session")
def goal(pytestconfig: pytest.Config) -> Callable[[float], float]:
    """Return what turns the catalogue's limit of a time or a share into what is asserted.

    That is the limit itself under `--long`, which wants a quiet machine. Every day it is `_SLACK` times as much, and more
    where other work holds the cores. What was measured is to be printed as a `figure` before.
    """
    if pytestconfig.getoption("--long"):
        return lambda limit: limit
    return lambda limit: patience(_SLACK * limit)


@pytest.fixture(scope="session")
def figure(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return what takes a measured figure in words; all of them are printed at the end of the run."""
    return pytestconfig.stash.setdefault(_FIGURES, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the figures of a process of `pytest -n` to the one that prints them."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["figures"] = session.config.stash.get(_FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the figures of a process of `pytest -n`; one that was killed has left none."""
    node.config.stash.setdefault(_FIGURES, []).extend(getattr(node, "workeroutput", {}).get("figures", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if figures := config.stash.get(_FIGURES, []):
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(figures))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let a thread that never ends fail the run, and say where it stands, instead of keeping it for ever.

    A process of `pytest -n` that is through waits for the others, and is ended with them.
    """
    if hasattr(config, "workerinput"):
        return
    faulthandler.dump_traceback_later(_SECONDS_TO_END, exit=True)
