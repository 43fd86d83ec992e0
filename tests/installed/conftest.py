"""One cluster for all tests here; each installs gputopo for itself, this version or an older one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.cluster.binaries import find_or_build
from tests.cluster.go_build import BinariesUnavailable
from tests.image import kept
from tests.image.kept import ImageUnavailable
from tests.installed.cluster import Cluster
from tests.installed.playground import NodesUnavailable, bare
from tests.installed.release import Release
from tests.manifests.helm import CHART, HelmUnavailable
from tests.release.released import ROOT, released

MACHINES = {"n0": "hgx_h100", "n1": "dgx1v", "n2": "pcie_l40s"}


@dataclass(frozen=True, slots=True)
class Older:
    """The newest version that was released: the folder with its files, and its image."""

    checkout: Path
    image: str
    archive: Path


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Older | None:
    """Give what was released last, if this checkout has the history of it and its image can be built."""
    if not (versions := released()):
        return None
    checkout = versions[0].unpack(tmp_path_factory.mktemp("released") / "checkout")
    name = f"localhost/gputopo:{versions[0].version}"
    try:
        return Older(checkout, name, kept.find_or_build(print, name, checkout))
    except ImageUnavailable:
        return None


@pytest.fixture(scope="package")
def cluster(older: Older | None) -> Iterator[Cluster]:
    """Give a cluster of three GPU nodes, without gputopo."""
    try:
        with bare(find_or_build(print), MACHINES, *([older.archive] if older else [])) as started:
            yield started
    except (BinariesUnavailable, HelmUnavailable, ImageUnavailable, NodesUnavailable) as reason:
        pytest.skip(str(reason))


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Callable[..., Release]]:
    """Give what installs gputopo with values of the chart; it is removed again, and what it wrote is not."""
    releases: list[Release] = []

    def install(version: Older | None = None, **values: object) -> Release:
        release = Release(cluster.plane, {name.replace("__", "."): value for name, value in values.items()})
        if version:
            release = replace(release, chart=version.checkout / CHART.relative_to(ROOT), image=version.image)
        releases.append(release)
        release.install()
        return release

    yield install
    cluster.delete_pods()
    for release in releases:
        release.uninstall()
