"""What running pods give back, which reservations rest on."""

from __future__ import annotations

from extender.cluster.candidates.holds import Held
from extender.features.queue.running import running_pods
from tests.extender.builders import at, cluster, gpus, pod
from tests.extender.shares import sharing, sharing_node
from topology.effort import finish


def test_a_pod_with_a_share_gives_back_no_more_than_its_share() -> None:
    """The GPU has another one, and is free only when both have ended."""
    first, second, third = gpus("n1", 0, 1, 2)
    whole = pod("whole", 2, on="n1", placed=(second, third), phase="Running")
    state = cluster(sharing_node(), whole, sharing("one", first, 10), sharing("two", first, 20))
    held = {running.held for running in finish(running_pods(state, at()))}
    assert held == {Held(0b110), Held(0, ((0, 10, ""),)), Held(0, ((0, 20, ""),))}
