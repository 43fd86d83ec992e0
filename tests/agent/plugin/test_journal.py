"""What was handed out, as text: the newest entries, whole, and nothing that was not written by us."""

from __future__ import annotations

import json

import pytest

from agent.plugin.devices.share_devices import share_devices
from agent.plugin.hold_back import Served
from agent.plugin.journal import MAX_ENTRIES, decode, encode

ENTRY = {"namespace": "ml", "name": "a", "uid": "uid-a", "gpus": ["GPU-a", "GPU-b"]}


def test_the_text_is_one_compact_line_with_gpus_in_order() -> None:
    """Equal journals are equal texts."""
    text = encode([Served("ml", "a", "uid-a", frozenset({"GPU-b", "GPU-a"}))])
    assert text == json.dumps({"v": 1, "served": [ENTRY]}, separators=(",", ":"))


def test_shares_are_told_briefly_and_read_back() -> None:
    """A share of 80 GiB is one short word, and not 80 long ones."""
    served = Served("ml", "a", "uid-a", frozenset(share_devices("GPU-a", 80)) - {"GPU-a::7"})
    text = encode([served])
    assert '"gpus":["GPU-a::0-6,8-79"]' in text
    assert decode(text) == (served,)


def test_of_too_many_entries_the_newest_are_read() -> None:
    """Nobody may fill the agent's memory by its disk."""
    entries = [ENTRY | {"name": str(number)} for number in range(MAX_ENTRIES + 2)]
    found = decode(json.dumps({"v": 1, "served": entries}))
    assert [each.name for each in found] == [str(number) for number in range(2, MAX_ENTRIES + 2)]
    assert len(found) == MAX_ENTRIES == 1024


def test_what_is_no_text_is_read_as_one() -> None:
    """A UID that is a number is compared with one that is not, and differs; nothing falls over."""
    numbers = {"namespace": 1, "name": 2, "uid": 3, "gpus": [4]}
    assert decode(json.dumps({"v": 1, "served": [numbers]})) == (Served("1", "2", "3", frozenset({"4"})),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"v":2,"served":[]}', "version 2 is not understood"),
        ("[]", "not a journal"),
        ('{"v":1}', "not a journal"),
        ('{"v":1,"served":7}', "not a journal"),
        ('{"v":1,"served":[7]}', "not a journal"),
        ("[" * 100_000, "not a journal"),
        (json.dumps({"v": 1, "served": [ENTRY | {"gpus": ["GPU-a::0-999999999"]}]}), "no share device"),
    ],
)
def test_what_is_no_journal_says_so(text: str, words: str) -> None:
    """In words that name the fault."""
    with pytest.raises(ValueError, match=words):
        decode(text)
