"""The image as a folder of files, and as containers."""

from pathlib import Path

import pytest

from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.nodes.programs import RUNC
from tests.image.builder import Builder
from tests.image.building import IMAGE
from tests.image.container import Runc


@pytest.fixture(scope="session")
def files(builder: Builder) -> Path:
    """Give the image's files."""
    return builder.files(IMAGE)


@pytest.fixture
def container(builder: Builder, files: Path, tmp_path: Path) -> Runc:
    """Give what runs the image."""
    try:
        folder = RUNC.find_or_build(print)
    except BinariesUnavailable as error:
        pytest.skip(str(error))
    (tmp_path / "bundle").mkdir()
    return Runc(folder / "runc", tmp_path / "bundle", files, builder.config(IMAGE))
