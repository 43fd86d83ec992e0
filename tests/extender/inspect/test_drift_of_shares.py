"""`kubectl gputopo drift` compares shares by amount, and calls none of them a device plugin's doing."""

from __future__ import annotations

import pytest

from extender.inspect import drift as words
from extender.inspect.drift import drift
from tests.extender.builders import cluster, gpus
from tests.extender.shares import Seen, share, sharing, sharing_node
from topology.annotations.records import Claim

A, B, *_ = gpus("n1", *range(8))


@pytest.mark.parametrize(
    ("claims", "seen", "expected"),
    [
        ((share(A, "p", 10),), {A: {"p": 10, "q": 5}}, ""),
        ((share(A, "p", 10),), {}, ""),
        ((share(A, "p", 10),), {B: {"p": 10}}, words.OTHER_GPUS),
        ((share(A, "p", 10),), {A: {"p": 12}}, words.OTHER_GPUS),
        ((share(A, "p", 8),), {A: {"p": 10}}, words.LEDGER_DIFFERS),
        ((), {}, words.LEDGER_DIFFERS),
    ],
)
def test_a_share_differs_by_gpu_and_by_amount(claims: tuple[Claim, ...], seen: Seen, expected: str) -> None:
    """Neighbours on its GPU are none of its business."""
    found = drift(cluster(sharing_node(*claims, seen=seen), sharing("p", A, 10))).differences
    assert [each.what for each in found] == ([expected] if expected else [])


def test_shares_that_cannot_be_together_are_called_so() -> None:
    """Two classes on one GPU."""
    state = cluster(sharing_node(), sharing("p", A, 10), sharing("q", A, 10, "dev"))
    assert {each.what for each in drift(state).differences} == {words.SHARED_BY_MISTAKE}
