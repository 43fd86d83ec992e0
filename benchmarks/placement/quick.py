"""What `--quick` runs: enough to see the way things go in less than a minute, and a sentence on what was cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.placement.policies import PRODUCT

SEEDS: Final = 2
POLICIES: Final = ("stock-least", "stock-most", "hived", "best-fit", PRODUCT)


def fewer_policies(policies: Sequence[str]) -> list[str]:
    """Return those of the policies that a quick run has; all where it has none of them."""
    return [name for name in policies if name in POLICIES] or [*policies]


def what_was_cut(seeds: int, whole_seeds: int, policies: Sequence[str], workloads: Sequence[str]) -> str:
    """Return the sentence that stands beside every result of a quick run; the lists are of what was left out."""
    parts = [f"{seeds} {'seed' if seeds == 1 else 'seeds'} instead of {whole_seeds}"]
    parts += [
        f"without the {what} {', '.join(names)}"
        for what, names in (("policies", policies), ("workloads", workloads))
        if names
    ]
    return f"Quick run: {'; '.join(parts)}. The intervals are wide: run it whole before you conclude anything."
