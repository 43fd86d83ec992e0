"""The long form of rows C1 and C2: every set-up whole, and every mutant.

Progress goes to stderr. The last line of stdout is `N states, V violations, M/26 mutants caught`; the exit status is zero for
0 violations and 26/26 only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.model.beliefs import Beliefs, beliefs
from tests.model.library import Found, Model, Violation
from tests.model.mutants import MORE, NINE, OLDER, SHARES, Wanting
from tests.model.setups import CAPACITY, CASES, Case
from tests.model.story import story

JOBS = 2
"""Explorations side by side; each has room for `CAPACITY` states."""


def main() -> int:
    """Explore everything; return the exit status."""
    _say("asking the product's caches what they can come to believe")
    believed = beliefs()
    with TemporaryDirectory() as folder:
        model = Model(Path(folder))
        return judge(model, believed, CASES, (*NINE, *MORE, *SHARES, *OLDER))


def judge(model: Model, believed: Beliefs, cases: Iterable[Case | Wanting], mutants: Sequence[Wanting]) -> int:
    """Print the verdict on the cases, and on the model's power to tell; return the exit status."""
    caught = [_hunt(model, mutant, believed) for mutant in mutants]
    with ThreadPoolExecutor(JOBS) as pool:
        found = list(pool.map(lambda case: _explore(model, case, believed), cases))
    states, violations = sum(each.states for each in found), sum(each.violation is not Violation.NONE for each in found)
    print(f"{states} states, {violations} violations, {sum(caught)}/{len(mutants)} mutants caught")
    return 0 if violations == 0 and all(caught) else 1


def _hunt(model: Model, mutant: Wanting, believed: Beliefs) -> bool:
    caught = _explore(model, mutant, believed).violation is mutant.shows
    published = f", {mutant.published_events} smaller ones in the design" if mutant.published_events else ""
    _say(f"{mutant.name}: {'caught' if caught else 'NOT CAUGHT'}{published}")
    return caught


def _explore(model: Model, case: Case | Wanting, believed: Beliefs) -> Found:
    started, setup = time.monotonic(), case.setup(believed)
    found = model.explore(setup, CAPACITY)
    seconds = time.monotonic() - started
    verdict = f"{found.violation.name}, {found.depth} events deep"
    summary = f"{case.name}: {verdict}; {found.states} states, {found.visited} visited, {seconds:.0f} s"
    _say("\n".join((summary, *story(setup, found))))
    return found


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
