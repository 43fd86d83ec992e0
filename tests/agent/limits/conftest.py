"""What the tests of limits share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.agent.limits.node import Node
from tests.nvml.library import FakeNvml


@pytest.fixture
def node(tmp_path: Path, fake_nvml: FakeNvml) -> Iterator[Node]:
    """Return a node with driver r615, cgroup v2 and eight GPUs."""
    made = Node(tmp_path, fake_nvml)
    with made.driver():
        yield made


@pytest.fixture
def open_node(fake_nvml: FakeNvml) -> Iterator[Node]:
    """Return such a node in a folder that every user may read."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        made = Node(Path(name), fake_nvml)
        with made.driver():
            yield made
