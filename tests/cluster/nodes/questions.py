"""What a running device plugin would choose, asked over its socket without any pod."""

import json
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Question:
    """One `GetPreferredAllocation`; devices in the order in which they are sent."""

    available: Sequence[str]
    size: int
    must_include: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Preferred:
    """The answer; no ids when the plugin failed."""

    ids: tuple[str, ...]
    error: str | None = None


def preferred(tools: Path, socket: Path, questions: Iterable[Question]) -> list[Preferred]:
    """Ask a plugin one question after the other."""
    lines = [
        json.dumps({"available": [*each.available], "must_include": [*each.must_include], "size": each.size})
        for each in questions
    ]
    answered = subprocess.run(
        [tools / "ask", "prefer", socket], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    found = map(json.loads, answered.stdout.splitlines())
    return [Preferred(tuple(each["ids"]), each.get("error")) for each in found]
