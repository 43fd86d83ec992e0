"""What tests on the kubelet double share: the fake NVML, built once."""

from __future__ import annotations

import pytest

from tests.nvml.library import FakeNvml, has_compiler


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library, ready to play machines."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))
