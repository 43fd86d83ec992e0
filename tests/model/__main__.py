"""The long form of rows C1 and C2: every set-up whole, and every mutant.

Progress goes to stderr. The last line of stdout is `N states, V violations, M/9 mutants caught`; the exit status is zero for
0 violations and 9/9 only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from tests.model.beliefs import Beliefs, beliefs
from tests.model.library import Found, Model, Setup, Violation
from tests.model.mutants import MORE, NINE
from tests.model.setups import CAPACITY, CASES
from tests.model.story import story

JOBS = 2
"""Explorations side by side; each has room for `CAPACITY` states."""


class Explorable(Protocol):
    """A case, or a mutant in its case."""

    @property
    def name(self) -> str: ...

    def setup(self, believed: Beliefs, /) -> Setup: ...


def main() -> int:
    """Explore everything; return the exit status."""
    _say("asking the product's caches what they can come to believe")
    believed = beliefs()
    with TemporaryDirectory() as folder:
        model = Model(Path(folder))
        for mutant in MORE:
            _explore(model, mutant, believed)
        return judge(model, believed, CASES, NINE)


def judge(model: Model, believed: Beliefs, cases: Iterable[Explorable], mutants: Sequence[Explorable]) -> int:
    """Print the verdict on the cases, and on the model's power to tell; return the exit status."""
    caught = [_explore(model, mutant, believed).violation is Violation.DOUBLE for mutant in mutants]
    with ThreadPoolExecutor(JOBS) as pool:
        found = list(pool.map(lambda case: _explore(model, case, believed), cases))
    states, violations = sum(each.states for each in found), sum(each.violation is not Violation.NONE for each in found)
    print(f"{states} states, {violations} violations, {sum(caught)}/{len(mutants)} mutants caught")
    return 0 if violations == 0 and all(caught) else 1


def _explore(model: Model, case: Explorable, believed: Beliefs) -> Found:
    started, setup = time.monotonic(), case.setup(believed)
    found = model.explore(setup, CAPACITY)
    lines = [f"{case.name}: {found.states} states, {found.moves} moves, {time.monotonic() - started:.0f} s"]
    if found.violation:
        lines += [f"{case.name}: {found.violation.name} after {found.depth} events", *story(setup, found)]
    _say("\n".join(lines))
    return found


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
