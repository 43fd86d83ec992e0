"""Which cluster a test runs on: the double if it says nothing, the real control plane, or both."""

import pytest

_REAL = pytest.param("kube-apiserver", marks=pytest.mark.cluster)

on_the_real_one = pytest.mark.parametrize("backend", [_REAL], indirect=True)
everywhere = pytest.mark.parametrize("backend", ["double", _REAL], indirect=True)
