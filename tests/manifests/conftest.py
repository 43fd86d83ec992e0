"""The pinned Helm for tests that render the chart; the other tests read the rendered copy and need nothing."""

import pytest

from tests.manifests.helm import HelmUnavailable, executable


@pytest.fixture(scope="session")
def helm_is_here() -> None:
    """Build Helm on first use; skip if that cannot be."""
    try:
        executable()
    except HelmUnavailable as reason:
        pytest.skip(str(reason))
