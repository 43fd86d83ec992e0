"""Fixtures for tests on real nodes; what this machine cannot run is skipped, with the reason."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.admission import put_in_force, unbind_policies
from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable, GoBuild
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import USERS, Installation
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import allow_agent_pods
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.namespaces import why_not
from tests.cluster.nodes.node import FLAGS, Parts, users
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE
from tests.nvml.library import FakeNvml, has_compiler
from topology.annotations import keys

NAMES = [f"n{number}" for number in range(24)]


@pytest.fixture(scope="session")
def built(pytestconfig: pytest.Config) -> Callable[[GoBuild], Path]:
    """Return what builds a set of programs on first use, and skips if that cannot be."""
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")

    def find_or_build(programs: GoBuild) -> Path:
        try:
            return programs.find_or_build(terminal.write_line if terminal else print)
        except BinariesUnavailable as reason:
            pytest.skip(str(reason))

    return find_or_build


@pytest.fixture(scope="session")
def parts(binaries: Path, built: Callable[[GoBuild], Path], tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """Return what nodes are made of."""
    if reason := why_not():
        pytest.skip(reason)
    if not has_compiler():
        pytest.skip("no gcc to build the fake NVML library")
    if not (binaries / "kubelet").exists():
        pytest.skip(f"no kubelet in {binaries}")
    return Parts(binaries, built(programs.TOOLS), FakeNvml(tmp_path_factory.mktemp("nvml")))


@pytest.fixture(scope="package")
def node_plane(binaries: Path) -> Iterator[Installation]:
    """Start one control plane with gputopo for all tests that have real nodes."""
    with ControlPlane(binaries, users={**USERS, **users(NAMES)}, flags=FLAGS) as running:
        installed = Installation(running)
        allow_agent_pods(running)
        yield installed


@pytest.fixture
def node_cluster(node_plane: Installation) -> Iterator[GpuCluster]:
    """Lend the control plane of `nodes` with extender and scheduler at work; take it before `nodes`."""
    with at_work(node_plane) as lent:
        yield lent


@pytest.fixture
def nodes(parts: Parts, node_plane: Installation) -> Iterator[Nodes]:
    """Lend a control plane to which real nodes can be added, by the names `n0` to `n23`; remove them again."""
    lent = Nodes(node_plane.plane, parts)
    try:
        yield lent
    finally:
        lent.stop()
        node_plane.plane.stop_schedulers()
        sweep(node_plane.plane.admin, keep=[NAMESPACE])


@pytest.fixture
def sharing_cluster(node_plane: Installation) -> Iterator[GpuCluster]:
    """Lend the control plane without its admission policies, with a scheduler that asks the extender about shares, too."""
    unbind_policies(node_plane.plane)
    with at_work(node_plane, more_resources=(keys.SHARE_RESOURCE,)) as lent:
        yield lent
    put_in_force(node_plane.plane)


@pytest.fixture(scope="session")
def real_runtime(built: Callable[[GoBuild], Path]) -> Runtime:
    """Return containerd with runc."""
    return containerd(built(programs.CONTAINERD), built(programs.RUNC))
