"""The compiled model, and what the product's caches believe: both once for all tests."""

from __future__ import annotations

import pytest

from tests.model.beliefs import Beliefs, beliefs
from tests.model.explorer import has_compiler
from tests.model.library import Model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Compile the model, or skip the test where there is no compiler."""
    if not has_compiler():
        pytest.skip("the model needs gcc")
    return Model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def believed() -> Beliefs:
    """Give all that the product's caches can come to believe."""
    return beliefs()
