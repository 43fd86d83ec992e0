"""One control plane with gputopo and the other controllers, for all tests of this folder."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.gpu_cluster import GpuCluster, at_work
from tests.cluster.installation import USERS, Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.kubectl import kubectl
from tests.cluster.neighbours import controllers, frameworks
from tests.cluster.neighbours.programs import find_or_build
from tests.cluster.polling import eventually
from tests.cluster.sweep import sweep
from tests.manifests.helm import CHART, HelmUnavailable, helm
from tests.manifests.rendered import NAMESPACE
from tests.world.kubelets import running_kubelets

_OWNERS = (
    controllers.WORKLOADS,
    controllers.JOBSETS,
    controllers.LEADER_WORKER_SETS,
    controllers.JOBS,
    "/apis/apps/v1/namespaces/default/statefulsets",
    frameworks.PYTORCHJOBS,
    frameworks.MPIJOBS,
    frameworks.TRAINJOBS,
    frameworks.TRAINING_RUNTIMES,
    frameworks.RAYJOBS,
    frameworks.RAYCLUSTERS,
)


@pytest.fixture(scope="session")
def neighbours(pytestconfig: pytest.Config) -> Path:
    """Return the folder of the controllers, built on first use; skip if that cannot be."""
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    try:
        return find_or_build(terminal.write_line if terminal else print)
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def shared(binaries: Path, neighbours: Path) -> Iterator[Installation]:
    """Start a control plane with gputopo's objects and the controllers."""
    with ControlPlane(binaries, users=USERS) as plane:
        installation = Installation(plane)
        allow_reading_sizes(plane)
        with controllers.at_work(neighbours, plane), frameworks.Frameworks(neighbours, plane).running():
            yield installation


def allow_reading_sizes(plane: ControlPlane) -> None:
    """Give the extender the role that it has with `extender.config.groups.readSizes`."""
    settings = ("image.repository=gputopo", "extender.config.groups.readSizes=true")
    words = [word for setting in settings for word in ("--set", setting)]
    try:
        rendered = helm("template", "gputopo", CHART, "--namespace", NAMESPACE, *words)
    except HelmUnavailable as reason:
        pytest.skip(str(reason))
    [role] = [
        found
        for found in yaml.safe_load_all(rendered)
        if found and (found["kind"], found["metadata"]["name"]) == ("ClusterRole", "gputopo-extender")
    ]
    kubectl(plane, "apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(role))


@pytest.fixture
def settings() -> Json:
    """Return the sections of the extender's configuration that are not the chart's."""
    return {}


@pytest.fixture
def kubelets(shared: Installation) -> Iterator[None]:
    """Run a simulated kubelet for every node."""
    with running_kubelets(shared.plane.kubeconfig()):
        yield


@pytest.fixture
def gpu_cluster(shared: Installation, kubelets: None, settings: Json) -> Iterator[GpuCluster]:
    """Lend it with extender and scheduler at work; see that the invariants hold, and empty it."""
    admin = shared.plane.admin
    try:
        with at_work(shared, settings, more_profiles=["default-scheduler"]) as lent:
            yield lent
            assert_invariants(admin, lent.told())
            for owners in _OWNERS:
                admin.delete(owners, {"propagationPolicy": "Background"})
            eventually(lambda: not any(admin.list(owners) for owners in _OWNERS))
    finally:
        sweep(admin, keep=[NAMESPACE, *controllers.NAMESPACES.values()])
