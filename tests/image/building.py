"""The image, built once for all tests that need it."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.image import kept
from tests.image.builder import TOOLS, Builder

IMAGE = "localhost/gputopo:tested"


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
        kept.keep(built, IMAGE)
        yield built
    finally:
        built.clean()
