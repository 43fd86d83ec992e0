"""The image, built once for all tests that need it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.builder import Builder

IMAGE = "localhost/gputopo:tested"
TOOLS = ("buildah", "debootstrap")


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """Give what has built the image."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        pytest.skip(f"the image is built with {' and '.join(TOOLS)}: no {' and no '.join(missing)} here")
    if os.geteuid() != 0:
        pytest.skip("only root may unpack a Debian and build in it by chroot")
    built = Builder(tmp_path_factory.mktemp("image"))
    try:
        try:
            built.get_base()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"neither a registry nor Debian's packages are in reach: {error}")
        built.make_image(IMAGE)
        yield built
    finally:
        built.run("buildah", "umount", "--all")
        built.run("buildah", "rm", "--all")
        built.run("buildah", "rmi", "--all")


@pytest.fixture(scope="session")
def image_archive(builder: Builder) -> Path:
    """Give the image as a file that container runtimes import."""
    archive = builder.folder / "image.tar"
    builder.run("buildah", "push", "--quiet", IMAGE, f"docker-archive:{archive}:{IMAGE}")
    return archive
