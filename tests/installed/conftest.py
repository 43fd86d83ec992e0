"""One cluster for all tests here; each installs gputopo for itself."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import find_or_build
from tests.cluster.go_build import BinariesUnavailable
from tests.cluster.nodes import programs
from tests.cluster.nodes.namespaces import why_not
from tests.cluster.nodes.network import why_no_network
from tests.cluster.nodes.node import Parts
from tests.installed.cluster import Cluster, Programs, running
from tests.installed.release import Release
from tests.manifests.helm import HelmUnavailable, executable
from tests.nvml.library import FakeNvml, has_compiler

MACHINES = {"n0": "hgx_h100", "n1": "dgx1v", "n2": "pcie_l40s"}


@pytest.fixture(scope="session")
def cluster(image_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give a cluster of three GPU nodes, without gputopo."""
    if reason := why_not() or why_no_network():
        pytest.skip(reason)
    if not has_compiler():
        pytest.skip("no gcc to build the fake NVML library")
    try:
        executable()
        kubernetes = find_or_build(print)
        tools, *others = programs.find_or_build(
            (programs.TOOLS, programs.CONTAINERD, programs.RUNC, programs.NETWORK), print
        )
    except (BinariesUnavailable, HelmUnavailable) as error:
        pytest.skip(str(error))
    parts = Parts(kubernetes, tools, FakeNvml(tmp_path_factory.mktemp("nvml")))
    with running(parts, Programs(*others), image_archive, MACHINES) as found:
        yield found


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Callable[..., Release]]:
    """Give what installs gputopo with values of the chart; it is removed again, and what it wrote is not."""
    releases: list[Release] = []

    def install(**values: object) -> Release:
        release = Release(cluster.plane, {name.replace("__", "."): value for name, value in values.items()})
        releases.append(release)
        release.install()
        return release

    yield install
    cluster.delete_pods()
    for release in releases:
        release.uninstall()
