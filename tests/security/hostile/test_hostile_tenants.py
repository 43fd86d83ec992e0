"""Hostile tenants of each family for a short while; `make hostile SECONDS=7200` has them for hours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.security.hostile.run import FAMILIES, run

SEED = 13
WRITES = 4000
"""With this seed and as many pods or payloads of each family, each of the faults shows that were reported on 2026-11-27."""


@pytest.mark.waits
@pytest.mark.parametrize("family", FAMILIES)
async def test_nobody_stops_the_others(family: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """All laws hold for everybody else, with the same tenants each time."""
    ended = await run(tmp_path, family, SEED, writes=WRITES)
    figure(f"hostile tenants: {str(ended).splitlines()[0]}")
    assert ended.broken is None, str(ended)
