"""Many seeds on all cores: what broke, and what happened how often, so that nobody can say that nothing was tried."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.run import run

_CHUNK = 20
_PROGRESS_SECONDS = 15.0


@dataclass(slots=True)
class Tally:
    """What came of some seeds."""

    seeds: int = 0
    broken: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Seed → its violations."""
    counters: Counter[str] = field(default_factory=Counter)

    @property
    def violations(self) -> int:
        """How many there were."""
        return sum(map(len, self.broken.values()))

    def add(self, other: Tally) -> None:
        """Take in what came of others."""
        self.seeds += other.seeds
        self.broken |= other.broken
        self.counters += other.counters

    def table(self) -> str:
        """Say what happened how often."""
        width = max(map(len, self.counters), default=0)
        return "\n".join(f"{what:<{width}}  {self.counters[what]:>9,}" for what in sorted(self.counters))


def tally(seeds: Sequence[int]) -> Tally:
    """Run some seeds, one after the other."""
    found = Tally()
    for seed in seeds:
        result = run(seed)
        found.seeds += 1
        found.counters += result.counters
        if result.violations:
            found.broken[seed] = result.violations
    return found


def soak(seeds: range, *, jobs: int) -> Tally:
    """Run all seeds on `jobs` cores; progress and violations go to stderr as they come."""
    found, said = Tally(), time.monotonic()
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    say = partial(print, file=sys.stderr, flush=True)
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(tally, chunks):
            found.add(part)
            for seed, violations in part.broken.items():
                say(f"seed {seed}: {violations[0]} (and {len(violations) - 1} more); replay: --seed {seed}")
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"{found.seeds} of {len(seeds)} seeds, {found.violations} violations")
    return found
