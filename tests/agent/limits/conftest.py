"""What the tests of limits share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.limits.node import Node
from tests.nvml.library import FakeNvml


@pytest.fixture
def node(tmp_path: Path, fake_nvml: FakeNvml) -> Iterator[Node]:
    """Return a node with driver r615, cgroup v2 and eight GPUs."""
    made = Node(tmp_path, fake_nvml)
    with made.driver():
        yield made
