"""Without Go nothing is checked, and that is said; a test that renders is skipped for the same reason."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.manifests.__main__ import main
from tests.manifests.helm import executable


@pytest.fixture
def _no_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let there be no Go in this process."""
    monkeypatch.setenv("PATH", "")
    executable.cache_clear()
    yield
    executable.cache_clear()


@pytest.mark.slow
def test_check_is_skipped_with_the_reason() -> None:
    """A machine without Go can still run every check that it can."""
    command = [sys.executable, "-m", "tests.manifests", "--check"]
    ended = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "manifests/rendered not checked: no Go to build Helm with\n")


@pytest.mark.slow
@pytest.mark.usefixtures("_no_go")
def test_nothing_is_written_and_the_command_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever asked for a new copy has none."""
    assert main([]) == 1
    assert capsys.readouterr().err == "manifests/rendered not written: no Go to build Helm with\n"


def test_bad_usage_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, as everywhere here."""
    assert main(["--force"]) == 2
    assert capsys.readouterr().err.startswith("usage: ")
