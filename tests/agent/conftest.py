"""What all tests of the agent share: the fake NVML, built once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.gpus.discovery import NOTHING, NodeDiscovery, discover
from agent.gpus.facts import NvmlFacts
from agent.gpus.host import Host
from agent.gpus.nvml.reader import read_nvml
from tests.nvml.library import FakeNvml, has_compiler, machine

Read = Callable[[str | Path], NvmlFacts]
Discover = Callable[..., NodeDiscovery]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library, ready to play machines."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def read(fake_nvml: FakeNvml) -> Read:
    """Return the facts of a described machine, by name or file, through the real binding."""

    def _read(described: str | Path) -> NvmlFacts:
        with fake_nvml.loaded(described if isinstance(described, Path) else machine(described)):
            return read_nvml()

    return _read


@pytest.fixture
def found(read: Read, tmp_path: Path) -> Discover:
    """Discover a described machine on a host whose kernel tells nothing, unless another host is given."""

    def _found(described: str | Path, host: Host | None = None, before: NodeDiscovery = NOTHING) -> NodeDiscovery:
        return discover(read(described), host or Host(tmp_path / "nowhere", tmp_path / "nowhere"), before)

    return _found


@pytest.fixture
def described(tmp_path: Path) -> Callable[..., Path]:
    """Write a description: a machine of the collection, with more lines."""

    def _described(name: str, *lines: str) -> Path:
        file = tmp_path / f"{name}-changed.nvml"
        file.write_text("\n".join([machine(name).read_text(), *lines, ""]))
        return file

    return _described
