"""Hostile tenants of each family for a short while; `make hostile SECONDS=7200` has them for hours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.security.hostile.run import FAMILIES, run

SEED = 1
WRITES = 2500
"""As many pods and payloads of each family find what the reports of 2026-11-27 say, within seconds."""


@pytest.mark.waits
@pytest.mark.parametrize("family", FAMILIES)
async def test_nobody_stops_the_others(family: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """All laws hold for everybody else, with the same tenants each time."""
    ended = await run(tmp_path, family, SEED, writes=WRITES)
    figure(f"hostile tenants: {ended}")
    assert ended.broken is None, str(ended)
