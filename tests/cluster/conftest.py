"""Fixtures for tests against the real Kubernetes control plane; each such test carries the mark `cluster`."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import find_or_build
from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import USERS, Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE
from tests.world.kubelets import running_kubelets

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Path:
    """Return the folder of the Kubernetes programs, built on first use; skip if that cannot be."""
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    try:
        return find_or_build(announce=terminal.write_line if terminal else print)
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="package")
def control_plane(binaries: Path) -> Iterator[ControlPlane]:
    """Start one control plane for all tests, with a user `nobody` who has no rights."""
    with ControlPlane(binaries, users={"nobody": []}) as running:
        yield running


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Lend the shared control plane, without nodes, pods or schedulers; empty it again afterwards."""
    yield control_plane
    control_plane.stop_schedulers()
    sweep(control_plane.admin)


@pytest.fixture(scope="package")
def installation(binaries: Path) -> Iterator[Installation]:
    """Start one control plane for all tests that need gputopo, and install it there."""
    with ControlPlane(binaries, users=USERS) as running:
        yield Installation(running)


@pytest.fixture
def kubelets(installation: Installation) -> Iterator[None]:
    """Run a simulated kubelet for every node; take it before `gpu_cluster`, whose last checks need it too."""
    with running_kubelets(installation.plane.kubeconfig()):
        yield


@pytest.fixture
def gpu_cluster(installation: Installation) -> Iterator[GpuCluster]:
    """Lend the installed control plane with extender and scheduler at work; see that the invariants hold at the end."""
    admin = installation.plane.admin
    try:
        with at_work(installation) as lent:
            yield lent
            assert_invariants(admin, lent.told())
    finally:
        sweep(admin, keep=[NAMESPACE])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last log lines of the control plane with a test that failed on it."""
    report = yield
    for running in getattr(item, "funcargs", {}).values():
        if report.failed:
            for component in getattr(running, "components", ()):
                report.sections.append((f"{component.name} log", component.log_tail()))
    return report
