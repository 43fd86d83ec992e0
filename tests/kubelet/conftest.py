"""What tests on the kubelet double share: the fake NVML, built once, and a folder for sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.nvml.library import FakeNvml, has_compiler


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library, ready to play machines."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Give a folder with a short name: a Unix socket's path has 107 characters, and those of `pytest -n` are long already."""
    with TemporaryDirectory(prefix="gputopo-") as folder:
        yield Path(folder)
