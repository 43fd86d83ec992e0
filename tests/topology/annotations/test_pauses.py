"""Who wants the driver of a node for himself: the GPU operator by its labels, a person by our annotation."""

from __future__ import annotations

import pytest

from topology.annotations.keys import PAUSE
from topology.annotations.pauses import UPGRADE_STATE, why_no_new_pods, why_paused

PLUGIN = "nvidia.com/gpu.deploy.device-plugin"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("true", ""),
        ("false", ""),
        ("", ""),
        ("paused-for-driver-upgrade", "paused: driver upgrade"),
        ("custom_paused-for-driver-upgrade", "paused: driver upgrade"),
        ("paused-for-mig-change", "paused: MIG change"),
        ("paused-for-new-things", "paused: new things"),
        ("paused", ""),
    ],
)
def test_operands_are_paused_by_a_value_or_by_its_end(value: str, why: str) -> None:
    """What was neither `true` nor off gets the word appended."""
    assert why_paused({PLUGIN: value}, {}) == why


def test_any_operand_will_do() -> None:
    """Where our own plugin serves, the operator's is off, and its label stays as it is."""
    labels = {PLUGIN: "false", "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-driver-upgrade"}
    assert why_paused(labels, {}) == "paused: driver upgrade"


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "paused"), ("  new\nfirmware\x00 ", "paused: new firmware"), ("x" * 99, f"paused: {'x' * 60}")],
)
def test_words_of_a_person_are_one_short_line(text: str, why: str) -> None:
    """They stand in kube-scheduler's events."""
    assert why_paused({}, {PAUSE: text}) == why_no_new_pods({}, {PAUSE: text}) == why


def test_upgrade_that_is_under_way_is_no_reason_to_let_the_driver_go() -> None:
    """Each of its steps says by a label of its own when that is wanted."""
    assert why_paused({UPGRADE_STATE: "validation-required"}, {}) == ""
    assert why_no_new_pods({UPGRADE_STATE: "validation-required"}, {}) == "paused: driver upgrade"
