"""One cluster for all tests here; each installs gputopo for itself."""

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.binaries import find_or_build
from tests.cluster.go_build import BinariesUnavailable
from tests.image.kept import ImageUnavailable
from tests.installed.cluster import Cluster
from tests.installed.playground import NodesUnavailable, bare
from tests.installed.release import Release
from tests.manifests.helm import HelmUnavailable

MACHINES = {"n0": "hgx_h100", "n1": "dgx1v", "n2": "pcie_l40s"}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Give a cluster of three GPU nodes, without gputopo."""
    try:
        with bare(find_or_build(print), MACHINES) as started:
            yield started
    except (BinariesUnavailable, HelmUnavailable, ImageUnavailable, NodesUnavailable) as reason:
        pytest.skip(str(reason))


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
