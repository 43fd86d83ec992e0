"""The pinned Helm, promtool and checks of charts, for tests that need them; others read the rendered copy and need nothing."""

from pathlib import Path

import pytest

from tests.cluster.go_build import BinariesUnavailable
from tests.manifests.checks import CHECKS
from tests.manifests.helm import HelmUnavailable, executable
from tests.manifests.prometheus import PROMTOOL


@pytest.fixture(scope="session")
def helm_is_here() -> None:
    """Build Helm on first use; skip if that cannot be."""
    try:
        executable()
    except HelmUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Build promtool on first use; skip if that cannot be."""
    try:
        return PROMTOOL.find_or_build(print) / "promtool"
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def checks_are_here() -> None:
    """Build chart-testing and kubeconform on first use; skip if that cannot be."""
    try:
        CHECKS.find_or_build(print)
    except BinariesUnavailable as reason:
        pytest.skip(str(reason))
