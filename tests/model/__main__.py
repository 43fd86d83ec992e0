"""The long form of rows C1 and C2, and of the queue's model: every set-up whole, and every mutant.

Progress goes to stderr. The last line of stdout is `N states, V violations, M/26 mutants caught`, and the one before is
`queue: N states, V violations, M/12 mutants caught`. The exit status is zero for 0 violations and all mutants only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.model.beliefs import Beliefs, beliefs
from tests.model.explorer import Found
from tests.model.library import Model, Move, State, Violation
from tests.model.mutants import MORE, NINE, OLDER, SHARES, Wanting
from tests.model.queue import setups as of_queue
from tests.model.queue.library import QueueModel, QueueViolation
from tests.model.queue.setups import QueueCase, QueueWanting
from tests.model.queue.story import queue_story
from tests.model.setups import CAPACITY, CASES, Case
from tests.model.story import story

JOBS = 2
"""Explorations side by side; each has room for `CAPACITY` states."""


def main() -> int:
    """Explore everything; return the exit status."""
    with TemporaryDirectory() as folder:
        status = judge_queue(QueueModel(Path(folder)), (*of_queue.EVERY_COMMIT, *of_queue.LONG), of_queue.MUTANTS)
    _say("asking the product's caches what they can come to believe")
    believed = beliefs()
    with TemporaryDirectory() as folder:
        model = Model(Path(folder))
        return status | judge(model, believed, CASES, (*NINE, *MORE, *SHARES, *OLDER))


def judge(model: Model, believed: Beliefs, cases: Iterable[Case | Wanting], mutants: Sequence[Wanting]) -> int:
    """Print the verdict on the cases, and on the model's power to tell; return the exit status."""
    caught = [_hunt(model, mutant, believed) for mutant in mutants]
    with ThreadPoolExecutor(JOBS) as pool:
        found = list(pool.map(lambda case: _explore(model, case, believed), cases))
    states, violations = sum(each.states for each in found), sum(each.violation is not Violation.NONE for each in found)
    print(f"{states} states, {violations} violations, {sum(caught)}/{len(mutants)} mutants caught")
    return 0 if violations == 0 and all(caught) else 1


def judge_queue(model: QueueModel, cases: Iterable[QueueCase | QueueWanting], mutants: Sequence[QueueWanting]) -> int:
    """Print the verdict on the queue's model, and on its power to tell; return the exit status."""
    caught = [_explore_queue(model, mutant)[1] is mutant.shows for mutant in mutants]
    explored = [_explore_queue(model, case) for case in cases]
    states, violations = sum(of for of, _ in explored), sum(bool(violation) for _, violation in explored)
    print(f"queue: {states} states, {violations} violations, {sum(caught)}/{len(mutants)} mutants caught")
    return 0 if violations == 0 and all(caught) else 1


def _explore_queue(model: QueueModel, case: QueueCase | QueueWanting) -> tuple[int, QueueViolation]:
    started, setup = time.monotonic(), case.setup()
    exploration = model.explore(setup, of_queue.CAPACITY)
    violation = QueueViolation(exploration.violation)
    summary = f"{case.name}: {violation.name}, {exploration.depth} events deep; {exploration.states} states"
    _say("\n".join((f"{summary}, {time.monotonic() - started:.0f} s", *queue_story(setup, exploration))))
    return exploration.states, violation


def _hunt(model: Model, mutant: Wanting, believed: Beliefs) -> bool:
    caught = _explore(model, mutant, believed).violation is mutant.shows
    published = f", {mutant.published_events} smaller ones in the design" if mutant.published_events else ""
    _say(f"{mutant.name}: {'caught' if caught else 'NOT CAUGHT'}{published}")
    return caught


def _explore(model: Model, case: Case | Wanting, believed: Beliefs) -> Found[State, Move]:
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
