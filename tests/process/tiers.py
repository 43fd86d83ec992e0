"""Which cluster a test runs on: the double if it says nothing, the real control plane, or both."""

from typing import Any

import pytest


def real(*values: Any) -> Any:
    """Return the parameters of a run on the real control plane, the backend first."""
    return pytest.param("kube-apiserver", *values, marks=pytest.mark.cluster)


on_the_real_one = pytest.mark.parametrize("backend", [real()], indirect=True)
everywhere = pytest.mark.parametrize("backend", ["double", real()], indirect=True)
