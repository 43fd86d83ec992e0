"""Run one piece of code under every sequence of choices, each run from a fresh start.

The first option of every choice is "all goes well"; a run may take at most `faults` other ones. Runs are replayed from their
choices alone, so a failing one is reproduced by its list of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """The choices of one run: those of the script first, then always the first option."""

    def __init__(self, script: Sequence[int] = ()) -> None:
        self._script = tuple(script)
        self.taken: list[int] = []
        self.offered: list[int] = []

    def choose(self, options: Sequence[T]) -> T:
        """Return the option whose turn it is."""
        position = len(self.taken)
        number = self._script[position] if position < len(self._script) else 0
        self.taken.append(number)
        self.offered.append(len(options))
        return options[number]


def explore(run: Callable[[Choices], None], faults: int) -> int:
    """Run everything with at most so many faults; returns the number of runs. A failing run names its script."""
    scripts: list[tuple[int, ...]] = [()]
    runs = 0
    while scripts:
        script = scripts.pop()
        choices = Choices(script)
        try:
            run(choices)
        except BaseException as error:
            error.add_note(f"script: {choices.taken}")
            raise
        runs += 1
        if sum(map(bool, script)) < faults:
            scripts += [
                (*choices.taken[:position], number)
                for position in range(len(script), len(choices.taken))
                for number in range(1, choices.offered[position])
            ]
    return runs
