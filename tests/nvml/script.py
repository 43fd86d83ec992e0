"""Scripts for the fake NVML: what happens to a machine over time, checked before it is played.

The library plays them by itself, in every process that has it; `script.c` says what can stand in one. A script is a text of
lines `at SECONDS STATEMENT`. `Scripted` puts one beside a description, with the clock that all processes read.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GPUS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_LINE = re.compile(r"at (?P<at>\S+) (?P<verb>\S+) ?(?P<rest>.*)")


class UnreadableScript(ValueError):
    """A line cannot be played; says which, and why."""


@dataclass(frozen=True, slots=True)
class Step:
    """What happens at one time."""

    at: float
    """Seconds from the script's beginning."""
    verb: str
    arguments: tuple[str, ...]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that it befalls, by index."""
        word = self.arguments[_PLACE_OF_GPUS.get(self.verb, 0)]
        return () if self.verb in _OF_THE_DRIVER else numbers(word)


def read_script(text: str) -> tuple[Step, ...]:
    """Return the steps of a script; raises `UnreadableScript`."""
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        said = " ".join(line.partition("#")[0].split())
        if not said:
            continue
        try:
            step = _step(said)
            if steps and step.at < steps[-1].at:
                raise UnreadableScript(f"{step.at:g} is before the step above, {steps[-1].at:g}")
        except UnreadableScript as error:
            raise UnreadableScript(f"line {number}: {error}") from None
        steps.append(step)
    return tuple(steps)


def numbers(text: str) -> tuple[int, ...]:
    """Return what a set such as `0,2-4` holds.

    >>> numbers("0,2-4")
    (0, 2, 3, 4)
    """
    if not _GPUS.fullmatch(text):
        raise UnreadableScript(f"{text!r} is no set of numbers such as 0,2-4")
    runs = [[int(end) for end in run.split("-")] for run in text.split(",")]
    return tuple(number for run in runs for number in range(run[0], run[-1] + 1))


class Scripted:
    """A description with its script, and the clock by which it is played."""

    def __init__(self, description: Path, script: str) -> None:
        self.description = description
        self.steps = read_script(script)
        self.stand(-1.0)
        Path(f"{description}.script").write_text(script)

    def stand(self, seconds: float) -> None:
        """Set the clock to this time; it stays so until it is set again."""
        self._set(f"stands {seconds}")

    def begin(self, speed: float = 1.0) -> None:
        """Let the clock run from the script's beginning; `speed` of its seconds pass in one."""
        self._set(f"begins {time.time():.6f} {speed}")

    def _set(self, line: str) -> None:
        """Change it at once, as others read it all the time."""
        clock = Path(f"{self.description}.clock")
        new = clock.with_suffix(".new")
        new.write_text(f"{line}\n")
        new.replace(clock)


def _step(said: str) -> Step:
    match = _LINE.fullmatch(said)
    if not match:
        raise UnreadableScript("is not `at SECONDS STATEMENT`")
    verb, arguments = match["verb"], match["rest"].split()
    if verb not in _FORMS:
        raise UnreadableScript(f"{verb} is none of {', '.join(_FORMS)}")
    forms = _FORMS[verb]
    if len(arguments) < len(forms) or (len(arguments) > len(forms) and verb not in _OPEN):
        raise UnreadableScript(f"{verb} has {len(arguments)} words after it in place of {len(forms)}")
    for argument, check in zip(arguments, forms, strict=False):
        check(argument)
    return Step(_seconds(match["at"]), verb, tuple(arguments))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise UnreadableScript(f"{text!r} is no number") from None
    if not 0 <= seconds < math.inf:
        raise UnreadableScript(f"{text!r} is no time to come")
    return seconds


def _whole(text: str) -> None:
    if not text.isdigit():
        raise UnreadableScript(f"{text!r} is no whole number")


def _any(text: str) -> None:
    """Take it as it is; the library refuses what it does not know."""


def _is(word: str) -> Callable[[str], None]:
    def check(text: str) -> None:
        if text != word:
            raise UnreadableScript(f"{text!r} stands where {word!r} has to")

    return check


_FORMS: Final[Mapping[str, tuple[Callable[[str], object], ...]]] = {
    "xid": (_whole, _whole),
    "rise": (numbers, _any, _seconds, _is("for"), _seconds),
    "heal": (numbers,),
    "reset": (numbers,),
    "remove": (numbers,),
    "init": (_any,),
    "gpu": (numbers, _any, _any),
    "link": (numbers, numbers, _any),
    "health": (numbers, _whole),
    "fail": (_any, numbers, _any),
    "hang": (_any, numbers, _seconds),
}
_OPEN: Final = {"gpu", "health"}
"""These go on to the end of the line."""
_PLACE_OF_GPUS: Final = {"fail": 1, "hang": 1}
_OF_THE_DRIVER: Final = {"init"}
