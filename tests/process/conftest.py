"""Worlds for tests with real processes: on the API double, and, marked `cluster`, on the real control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.conftest import binaries
from tests.cluster.control_plane import ControlPlane
from tests.cluster.installation import USERS, Installation
from tests.process.backends import Backend, Double, Kube
from tests.process.world import World

__all__ = ["binaries"]

DOUBLE = "double"
_PASSED = pytest.StashKey[bool]()


@pytest.fixture(scope="package")
def process_installation(request: pytest.FixtureRequest) -> Iterator[Installation]:
    """Start a control plane with gputopo installed: of these tests' own, because some of them break it."""
    with ControlPlane(request.getfixturevalue("binaries"), users=USERS) as running:
        yield Installation(running)


@pytest.fixture
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """Give the double, unless the test is for others (`@everywhere`, `@on_the_real_one`)."""
    async with AsyncExitStack() as stack:
        if getattr(request, "param", DOUBLE) == DOUBLE:
            yield await stack.enter_async_context(Double.running(tmp_path))
        else:
            plane = request.getfixturevalue("process_installation").plane
            yield await stack.enter_async_context(Kube.lent(plane))


@pytest.fixture
async def world(request: pytest.FixtureRequest, backend: Backend, tmp_path: Path) -> AsyncIterator[World]:
    """Give an empty cluster without replicas; when the test has passed, the laws must hold."""
    async with World(backend, tmp_path) as world:
        yield world
        if request.node.stash.get(_PASSED, False):
            await world.judge()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last log lines of every replica with a test that failed."""
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and isinstance(world, World):
        for replica in world.replicas:
            report.sections.append((f"{replica.name} log", replica.process.log_tail()))
    return report
