"""NVML is let go when somebody wants the driver for himself, and when the agent is to end."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count

import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.nvml.access import CLOSED, PAUSED, NvmlAccess


class Nvml:
    """Counts who has it open."""

    def __init__(self) -> None:
        self.users = 0

    def read(self, number: int) -> int:
        return number + 1

    def follow(self) -> Generator[int, None, None]:
        self.users += 1
        try:
            yield from count()
        finally:
            self.users -= 1


def test_reading_fails_at_once_while_nvml_is_left_alone() -> None:
    """And goes on afterwards; nothing was asked of NVML meanwhile."""
    access, nvml = NvmlAccess(), Nvml()
    read = access.reading(nvml.read)
    assert read(1) == 2
    assert access.pause("driver upgrade")
    assert not access.pause("driver upgrade")
    with pytest.raises(NvmlUnavailable, match="driver upgrade") as refused:
        read(1)
    assert refused.value.code == PAUSED
    assert access.pause("")
    assert read(1) == 2


def test_who_holds_nvml_open_lets_it_go_with_the_next_word() -> None:
    """Nobody has to close the generator."""
    access, nvml = NvmlAccess(), Nvml()
    follow = access.following(nvml.follow)
    told = follow()
    assert (next(told), nvml.users) == (0, 1)
    access.pause("MIG change")
    assert list(told) == []
    assert nvml.users == 0
    assert list(follow()) == []
    access.pause("")
    assert next(follow()) == 0


def test_after_the_end_nothing_is_opened_again() -> None:
    """Whatever the node says then."""
    access, nvml = NvmlAccess(), Nvml()
    access.close()
    access.pause("")
    with pytest.raises(NvmlUnavailable) as refused:
        access.reading(nvml.read)(1)
    assert refused.value.code == CLOSED
    assert list(access.following(nvml.follow)()) == []
