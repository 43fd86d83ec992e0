"""What a node says of how it shares its GPUs."""

from __future__ import annotations

from typing import Literal

import pytest

from agent.plugin.devices.sharing import NONE_SHAREABLE, ONLY_ENFORCED, sharing_of
from topology.node.sharing import Limits, Sharing


@pytest.mark.parametrize(
    ("gpus", "most"), [("all", 3), (2, 2), (8, 3)]
)  # fmt: skip
def test_no_more_gpus_are_shared_than_there_are_and_somebody_wants(gpus: Literal["all"] | int, most: int) -> None:
    """Why the limits are not stronger is told beside it."""
    told = sharing_of(gpus, "enforce", {"a", "b", "c"}, [], Limits.MPS, ("driver 580",))
    assert told == Sharing(most, Limits.MPS, ("driver 580",))


def test_where_sharing_is_off_nothing_is_said() -> None:
    """In either mode."""
    assert sharing_of("none", "enforce", {"a"}, [], Limits.NONE) is None
    assert sharing_of("none", "observe", {"a"}, [], Limits.NONE) is None


@pytest.mark.parametrize(
    ("mode", "shareable", "unshared", "held_back", "reasons"),
    [
        ("observe", ["a"], [], "", (ONLY_ENFORCED,)),
        ("enforce", [], ["no reserve", "a GPU has MIG on", "no reserve"], "", (NONE_SHAREABLE, "a GPU has MIG on", "no reserve")),
        ("enforce", ["a"], [], "nothing holds containers", ("nothing holds containers", "driver 580")),
    ],
)  # fmt: skip
def test_where_sharing_is_on_and_cannot_be_had_the_reason_is_said(
    mode: str, shareable: list[str], unshared: list[str], held_back: str, reasons: tuple[str, ...]
) -> None:
    """It is 0 GPUs then, and not silence."""
    told = sharing_of("all", mode, shareable, unshared, Limits.NONE, ("driver 580",), held_back=held_back)
    assert told == Sharing(0, Limits.NONE, reasons)
