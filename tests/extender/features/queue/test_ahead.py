"""How many pods are under way at one time, and when more are planned."""

from __future__ import annotations

from random import Random

from extender.binding.outcome import Bound
from extender.features.queue.settings import QueueSettings
from tests.extender.features.queue.site import Site


async def test_more_pods_are_planned_when_a_quarter_of_those_under_way_are_bound() -> None:
    """A plan for each pod that is bound would cost more than the pods."""
    site = Site(1, 12, Random(0))
    site.queue.settings = QueueSettings(enabled=True, ahead=8)
    for number in range(12):
        site.create(f"p{number}", [2])
    under_way = list[int]()
    for binds in (0, 1, 1):
        for uid, node in [*site.queue.started.nodes()][:binds]:
            pod = site.replica.state.pods.get(uid)
            assert pod and isinstance(site.replica.bind(pod.key[1], node), Bound)
        await site.tick(binds=0.0)
        under_way.append(len(site.queue.started))
    assert under_way == [8, 7, 8]
