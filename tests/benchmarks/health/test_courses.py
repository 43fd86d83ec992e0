"""The health machine under sixty sequences of facts, as `gputopo-bench health` follows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.health.policy import Policy
from benchmarks.health.course import Course, follow
from benchmarks.health.facts import read_facts
from tests.benchmarks.health.courses import CASES, Case

_KEYS = {
    "xid", "recovery_action", "lost", "back", "ecc_uncorrected", "remap_failure", "throttled", "agent_restart", "driver_reload",
    "boot", "override",
}  # fmt: skip


def course_of(told: str, folder: Path) -> Course:
    """Follow the facts, by way of a file as a user writes it."""
    file = folder / "facts.jsonl"
    file.write_text("\n".join(json.dumps(_fact(each.split())) for each in told.split(";")))
    return follow(read_facts(file), Policy())


def _fact(words: list[str]) -> dict[str, object]:
    t, *rest = words
    gpu = {} if rest[0] in _KEYS else {"gpu": rest.pop(0)}
    key, value = rest[0], rest[1] if len(rest) > 1 else "true"
    return {"t": float(t), **gpu, key: value if value in {"healthy", "cordoned"} else json.loads(value)}


def _expected(course: str) -> list[tuple[float, str]]:
    words = course.split()
    return [(float(t), state) for t, state in zip(words[::2], words[1::2], strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sequence_has_its_course(case: Case, tmp_path: Path) -> None:
    """Every change of every GPU, at its second."""
    found = course_of(case.told, tmp_path).gpus
    seen = {gpu: [(round(change.t), change.state) for change in changes] for gpu, changes in found.items() if changes}
    assert seen == {gpu: _expected(course) for gpu, course in case.course.items()}


def test_there_are_sixty() -> None:
    """Each with a name of its own."""
    assert len({case.name for case in CASES}) == len(CASES) >= 60
