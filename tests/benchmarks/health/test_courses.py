"""The health machine under sequences of facts, as `gputopo-bench health` follows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.health.policy import HealthPolicy
from agent.health.xids import XidKind, kind_of
from benchmarks.health.course import HealthTimeline, follow
from benchmarks.health.facts import UnreadableFact, read_facts
from tests.benchmarks.health.courses import CASES, Case

_KEYS = {
    "nvlink_down", "nvlink_up",
    "xid", "recovery_action", "lost", "back", "ecc_uncorrected", "remap_failure", "throttled", "agent_restart", "driver_reload",
    "boot", "override", "sram_threshold", "ecc_corrected_per_second", "banks_without_spares", "nvlink_errors_per_second",
    "pcie_replays_per_minute", "temperature_margin",
}  # fmt: skip


def course_of(told: str, folder: Path) -> HealthTimeline:
    """Follow the facts, by way of a file as a user writes it."""
    file = folder / "facts.jsonl"
    file.write_text("\n".join(json.dumps(_fact(each.split())) for each in told.split(";")))
    return follow(read_facts(file), HealthPolicy())


def _fact(words: list[str]) -> dict[str, object]:
    t, *rest = words
    gpu = {} if rest[0] in _KEYS else {"gpu": rest.pop(0)}
    key, value = rest[0], rest[1] if len(rest) > 1 else "true"
    return {
        "t": float(t),
        **gpu,
        key: value if key in {"nvlink_down", "nvlink_up"} or value in {"healthy", "cordoned"} else json.loads(value),
    }


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


def test_reasons_say_what_has_happened_last(tmp_path: Path) -> None:
    """Of each closure its own; of a failure how many there were."""
    (changes,) = course_of("0 a xid 78; 1000 a xid 12345; 5000 a xid 78", tmp_path).gpus.values()
    assert [change.reason for change in changes] == [
        "xid 78",
        "xid 78",
        "xid 12345",
        "xid 12345",
        "3 incidents in a day, the last with xid 78",
    ]


def test_a_link_is_used_again_after_five_minutes_up(tmp_path: Path) -> None:
    """However often it goes down in between; whichever end tells."""
    told = "0 a nvlink_down b; 100 a nvlink_up b; 200 b nvlink_down a; 250 b nvlink_up a"
    facts = [_fact(each.split()) for each in told.split(";")]
    (tmp_path / "facts").write_text("\n".join(map(json.dumps, facts)))
    course = follow(read_facts(tmp_path / "facts"), HealthPolicy())
    assert [(change.t, change.state) for change in course.links["a-b"]] == [(0, "down"), (550, "up")]
    assert course.gpus == {"a": [], "b": []}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: "),
        ("[]", "is no JSON object"),
        ('{"gpu": "a", "xid": 79}', "has no t in seconds"),
        ('{"t": 5, "gpu": "a"}', "tells 0 things in place of one"),
        ('{"t": 5, "gpu": "a", "xid": 1, "lost": true}', "tells 2 things in place of one: lost, xid"),
        ('{"t": 5, "gpu": "a", "fire": true}', "fire is none of xid, recovery_action"),
        ('{"t": 5, "gpu": "a", "xid": "79"}', "xid: '79' is no whole number"),
        ('{"t": 5, "gpu": "a", "recovery_action": 9}', "recovery_action: 9 is not a valid"),
        ('{"t": 5, "gpu": "a", "override": "well"}', "override: 'well' is none of healthy, cordoned, null"),
        ('{"t": 5, "gpu": "a", "pcie_replays_per_minute": -1}', "pcie_replays_per_minute: -1 is no rate"),
        ('{"t": 5, "gpu": "a", "ecc_corrected_per_second": true}', "ecc_corrected_per_second: True is no rate"),
        ('{"t": 5, "gpu": "a", "temperature_margin": 0.5}', "temperature_margin: 0.5 is no whole number of degrees"),
        ('{"t": 5, "nvlink_down": "b"}', "nvlink_down needs a gpu"),
        ('{"t": 0.5, "gpu": "a", "xid": 79}', "t 0.5 is before the line above, 1"),
    ],
)
def test_a_line_that_is_no_fact_is_named(tmp_path: Path, line: str, reason: str) -> None:
    """With the file, its number, and what is wrong with it."""
    (tmp_path / "facts").write_text(f'{{"t": 1, "gpu": "a", "xid": 79}}\n{line}\n')
    with pytest.raises(UnreadableFact, match="facts, line 2: ") as refused:
        read_facts(tmp_path / "facts")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (XidKind.LINK, (144, 145, 146, 149)),
        (XidKind.NOTICE, (63, 147, 148, 152, 153, 154, 157, 160, 165, 171, 172, 185)),
        (XidKind.LOOK, (48, 64, 140, 150, 151, 155, 158, 169)),
        (XidKind.RESET, (79, 95, 119, 120, 143)),
        (XidKind.APPLICATION, (13, 31, 82, 86, 96, 105, 126, 135, 139)),
        (XidKind.BROKEN, (142,)),
        (XidKind.HOLD, (0, 54, 74, 78, 87, 125, 136 + 1000, 159, 166)),
    ],
)
def test_each_error_is_of_its_kind(kind: XidKind, numbers: tuple[int, ...]) -> None:
    """The edges of what the catalogue groups."""
    assert {kind_of(number) for number in numbers} == {kind}
