"""What `what-if --evict` leaves of a cluster without some of its pods."""

from __future__ import annotations

from extender.kubectl.eviction import without
from tests.extender.builders import node, pod
from topology.annotations import keys
from topology.annotations.records import ClaimUser, Observed, decode_observed, encode_observed


def test_pods_that_are_gone_use_no_devices_of_claims() -> None:
    """Their GPUs would seem to be used without a claim, as their claims go, too."""
    gone, stays = (ClaimUser("ml", name, "main", f"{name}-gpus", "n1", ("gpu-0",)) for name in ("gone", "stays"))
    before = node(observed=encode_observed(Observed({}, claimed=(gone, stays))))
    (after,), pods = without([before], [pod("gone", on="n1"), pod("stays", on="n1")], {("ml", "gone")})
    assert decode_observed((after.metadata.annotations or {})[keys.OBSERVED]).claimed == (stays,)
    assert [each.metadata.name for each in pods] == ["stays"]
