"""What a picture of a node says of its GPUs beside their wires: who has them, and which are sick."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

COLOURS: Final = 8
"""Of holders; the ninth has the colour of the first, and a letter of its own."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One GPU's."""

    holder: str = ""
    """Who has it; empty for nobody."""
    sick: str = ""
    """Why it gets no new pods; empty where it does."""
    links: str = ""
    """Which of its NVLinks are not used, and why; empty where all are."""
    to_watch: str = ""
    """What people should know of it, though it gets new pods."""


def letters_of(marks: Iterable[Mark]) -> dict[str, str]:
    """Return holder → letter, in the order of their GPUs.

    >>> letters_of([Mark("ns/train"), Mark(), Mark("ns/serve"), Mark("ns/train")])
    {'ns/train': 'A', 'ns/serve': 'B'}
    """
    holders = dict.fromkeys(mark.holder for mark in marks if mark.holder)
    return {holder: _letter(number) for number, holder in enumerate(holders)}


def colour_of(letter: str) -> int:
    """Return the number of a letter's colour.

    >>> [colour_of(letter) for letter in ("A", "H", "I")]
    [0, 7, 0]
    """
    return ascii_uppercase.index(letter[0]) % COLOURS


def _letter(number: int) -> str:
    rounds, place = divmod(number, len(ascii_uppercase))
    return ascii_uppercase[place] + (str(rounds + 1) if rounds else "")
