"""Without Go nothing is checked, and that is said; a test that renders is skipped for the same reason."""

import subprocess
import sys


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.manifests` where there is no Go."""
    command = [sys.executable, "-m", "tests.manifests", *arguments]
    return subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)


def test_check_is_skipped_with_the_reason() -> None:
    """A machine without Go can still run every check that it can."""
    ended = run("--check")
    assert (ended.returncode, ended.stderr) == (0, "manifests/rendered not checked: no Go to build Helm with\n")


def test_nothing_is_written_and_the_command_fails() -> None:
    """Whoever asked for a new copy has none."""
    ended = run()
    assert (ended.returncode, ended.stderr) == (1, "manifests/rendered not written: no Go to build Helm with\n")


def test_bad_usage_says_how() -> None:
    """Status 2, as everywhere here."""
    assert run("--force").returncode == 2
