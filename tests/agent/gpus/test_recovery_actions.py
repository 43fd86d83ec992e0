"""What the driver asks for closes the GPU, concerns the whole node, or neither."""

from __future__ import annotations

import pytest

from agent.health.evidence import RecoveryAction


@pytest.mark.parametrize(
    ("action", "closes", "is_of_the_node"),
    [
        (RecoveryAction.NONE, False, False),
        (RecoveryAction.GPU_RESET, True, False),
        (RecoveryAction.NODE_REBOOT, False, True),
        (RecoveryAction.DRAIN_P2P, False, False),
        (RecoveryAction.DRAIN_AND_RESET, True, False),
        (RecoveryAction.RECOVER_IMEX_DOMAIN, False, False),
        (RecoveryAction.BUS_RESET, True, False),
        (RecoveryAction.SYSTEM_REBOOT, False, True),
    ],
)
def test_an_action_closes_its_gpu_or_is_of_the_node(
    action: RecoveryAction, *, closes: bool, is_of_the_node: bool
) -> None:
    """A reset is of one GPU; a restart is a flag of the whole driver."""
    assert (action.closes, action.is_of_the_node) == (closes, is_of_the_node)
