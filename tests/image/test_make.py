"""`make image` takes what builder there is, and says what it lacks."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.image import base

BUILDERS = ("podman", "docker", "buildah")


def make_image(tmp_path: Path, answering: set[str], *variables: str) -> subprocess.CompletedProcess[str]:
    """Run it where all three are installed, and only some of them answer; these print what they are asked."""
    for name in BUILDERS:
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = info ] && exit {int(name not in answering)}\necho "{name}: $*"\n')
        program.chmod(0o755)
    return subprocess.run(
        ["make", "--no-print-directory", "image", *variables],
        cwd=base.ROOT,
        env=os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("builder", BUILDERS)
def test_any_of_the_three_will_do(tmp_path: Path, builder: str) -> None:
    """A client without its daemon is passed over."""
    done = make_image(tmp_path, {builder}, "TAG=here/gputopo:1")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"{builder}: build -f Containerfile -t here/gputopo:1 ."


def test_base_and_platform_are_handed_on(tmp_path: Path) -> None:
    """The base may be pinned by digest, and the image be for another machine."""
    done = make_image(tmp_path, {"podman"}, "BASE=python@sha256:12", "PLATFORM=linux/arm64", "TAG=t")
    assert "podman: build --build-arg PYTHON=python@sha256:12 --platform linux/arm64 " in done.stdout


def test_without_a_builder_it_names_the_three(tmp_path: Path) -> None:
    """Nothing is built, and nobody has to read the Makefile."""
    done = make_image(tmp_path, set())
    assert done.returncode != 0
    assert "image: needs podman, docker or buildah" in done.stderr
