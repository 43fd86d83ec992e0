"""Figures for tests: a value for each gauge that is read at a scrape."""

from __future__ import annotations

from extender.features.registry import DECLARATIONS
from extender.telemetry.metrics import PREFIX, SeriesKind


def every_gauge(value: float) -> dict[str, float]:
    """Return the same value for each gauge without labels."""
    read = [
        declaration for declaration in DECLARATIONS if declaration.kind is SeriesKind.READ and not declaration.labels
    ]
    return {declaration.name.removeprefix(PREFIX): value for declaration in read}
