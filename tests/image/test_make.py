"""`make image` takes what builder there is, and says what it lacks."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.image import base
from tests.image.builder import Builder

BUILDERS = ("podman", "docker", "buildah")


def make_image(
    tmp_path: Path, answering: set[str], *variables: str, target: str = "image"
) -> subprocess.CompletedProcess[str]:
    """Run it where all three are installed, and only some of them answer; these print what they are asked."""
    for name in BUILDERS:
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\n[ "$1" = info ] && exit {int(name not in answering)}\necho "{name}: $*"\n')
        program.chmod(0o755)
    return subprocess.run(
        ["make", "--no-print-directory", target, *variables],
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


LIST = ("PLATFORM=linux/amd64,linux/arm64", "TAG=t", "ARCHIVE=a.tar")


@pytest.mark.parametrize("builder", BUILDERS)
def test_several_platforms_are_a_manifest_list(tmp_path: Path, builder: str) -> None:
    """Podman and buildah would give the tag to the image that is built last; docker makes a list by itself."""
    (built,) = make_image(tmp_path, {builder}, *LIST).stdout.splitlines()[-1:]
    name = "-t" if builder == "docker" else "--manifest"
    assert built == f"{builder}: build --platform linux/amd64,linux/arm64 -f Containerfile {name} t ."
    (saved,) = make_image(tmp_path, {builder}, *LIST, target="image-archive").stdout.splitlines()[-1:]
    wanted = "save -o a.tar t" if builder == "docker" else "manifest push --quiet --all t oci-archive:a.tar:t"
    assert saved == f"{builder}: {wanted}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("buildah") is None or os.geteuid() != 0, reason="no buildah here, or no root")
def test_manifest_list_holds_an_image_for_each_platform(tmp_path: Path) -> None:
    """Of an image without programs, which needs no emulation: built, and saved for other machines."""
    (tmp_path / "Containerfile").write_text("FROM scratch\nCOPY text /text\n")
    (tmp_path / "text").write_text("for any machine\n")
    builder = Builder(tmp_path, source=tmp_path)
    variables = (*LIST[:1], "TAG=localhost/both:1", "BUILDER=buildah", f"ARCHIVE={tmp_path}/a.tar")
    try:
        builder.run("make", "-f", base.ROOT / "Makefile", "image", "image-archive", *variables)
    finally:
        builder.clean()
    with tarfile.open(tmp_path / "a.tar") as archive:
        (entry,) = json.load(archive.extractfile("index.json") or io.BytesIO())["manifests"]
        listed = json.load(archive.extractfile(f"blobs/{entry['digest'].replace(':', '/')}") or io.BytesIO())
    platforms = {(each["platform"]["os"], each["platform"]["architecture"]) for each in listed["manifests"]}
    assert platforms == {("linux", "amd64"), ("linux", "arm64")}


def test_without_a_builder_it_names_the_three(tmp_path: Path) -> None:
    """Nothing is built, and nobody has to read the Makefile."""
    done = make_image(tmp_path, set())
    assert done.returncode != 0
    assert "image: needs podman, docker or buildah" in done.stderr
