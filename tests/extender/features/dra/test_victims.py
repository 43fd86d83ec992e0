"""Of the pods that a waiting pod comes before, the fewest and least important end, by the rules of the `preempt` verb."""

from __future__ import annotations

from time import time

import msgspec
import pytest

from benchmarks.simulated.double.resources import PODS, Object
from extender.cluster.node_view import NodeView
from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.features.dra.demands import Demands
from extender.features.dra.preempting import GRACE_SECONDS
from extender.features.dra.victims import OVERDUE_SECONDS, DeviceVictims, NoVictims, VictimSearch
from extender.kit.clock import Instant
from extender.planning.planned_nodes import PlannedNodes
from extender.planning.queue import NodesOfCluster, on_their_way
from extender.planning.units import PendingPod, Unit
from extender.verbs.pod_context import PodContext
from tests.extender.features.dra.claim_site import CLAIMS
from tests.extender.features.dra.preemption_site import GPUS, PreemptionSite
from topology.effort import finish


def search(site: PreemptionSite, name: str, after_seconds: float = 0.0) -> DeviceVictims | NoVictims:
    """Return what the planner finds for a waiting pod so long after this moment; the double has the time of day."""
    planner = site.planner
    planner.catch_up()
    now, pod = Instant(planner.replica.seconds, time() + after_seconds), site.waiting(name)
    context = PodContext.read(planner.state, pod.pod, now)
    nodes = PlannedNodes(NodesOfCluster(planner.state), on_their_way(planner.state, now))
    away = tuple(context.away(planner.state))
    wanted = PendingPod(pod.pod, context.request, away, context.fallbacks, context.accepted_devices)
    return finish(VictimSearch(planner.state, planner.dra.demands, nodes, Unit.alone(wanted), now).run())


def victims(site: PreemptionSite, gpus: int = GPUS, priority: int = 100, **more: str) -> set[str] | NoVictims:
    """Return the names of the pods that end for a new pod."""
    site.create("high", gpus, priority=priority, **more)  # type: ignore[arg-type]
    choice = search(site, "high")
    if isinstance(choice, NoVictims):
        return choice
    assert all(pod.node == choice.targets[0].node for pod in choice.pods)
    return {pod.key[1] for pod in choice.pods}


def two_nodes() -> PreemptionSite:
    """Return two full nodes: a pod of priority 10 on one, and two of priority 5 on the other."""
    site = PreemptionSite(2)
    site.running("ten", GPUS, priority=10)
    site.running("five", GPUS // 2, priority=5, labels={"app": "five"})
    site.running("five-too", GPUS // 2, priority=5)
    assert site.node_of("five") == site.node_of("five-too") != site.node_of("ten")
    return site


def test_the_least_important_pods_end_and_of_these_the_fewest() -> None:
    """Their priority counts more than their number, as for kube-scheduler."""
    site = two_nodes()
    assert victims(site) == {"five", "five-too"}
    site.create("half", GPUS // 2, priority=100)
    choice = search(site, "half")
    assert isinstance(choice, DeviceVictims) and len(choice.pods) == 1 and choice.pods[0].key[1].startswith("five")


def test_only_pods_of_lower_priority_end() -> None:
    site = two_nodes()
    assert victims(site, priority=5) is NoVictims.NONE
    site.create("seven", GPUS, priority=7)
    choice = search(site, "seven")
    assert isinstance(choice, DeviceVictims) and len(choice.pods) == 2


def test_pods_beyond_a_budget_stay_and_others_end() -> None:
    """Where no others help, nobody ends: kube-scheduler would break the budget."""
    site = two_nodes()
    site.budget("five")
    assert victims(site) == {"ten"}
    site.create("seven", GPUS, priority=7)
    assert search(site, "seven") is NoVictims.BUDGETS


def test_nobody_ends_while_budgets_cannot_be_read() -> None:
    site = two_nodes()
    site.planner.state.budgets.is_denied = lambda: True
    assert victims(site) is NoVictims.UNREAD


def test_a_pod_with_several_budgets_stays_as_the_api_server_evicts_none() -> None:
    site = two_nodes()
    for name in ("x", "y"):
        selector = {"matchLabels": {"app": "five"}}
        budget: Object = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector}}
        budget |= {"status": {"disruptionsAllowed": 5}}
        site.planner.state.budgets.changed(msgspec.convert(budget, PodDisruptionBudget))
    assert victims(site) == {"ten"}


def shared_claim(priority: int) -> PreemptionSite:
    """Return a full node whose devices are a claim's that two pods use, the second one of this priority."""
    site = PreemptionSite()
    site.create_claim("shared", GPUS)
    site.create_naming("first", "shared", priority=0)
    site.settle(3)
    spec = {
        "containers": [{"name": "main", "resources": {}}],
        "nodeName": "n0",
        "priority": priority,
        "resourceClaims": [{"name": "shared", "resourceClaimName": "shared"}],
    }
    site.world.store.create(PODS, "default", {"metadata": {"name": "second"}, "spec": spec})
    users = [{"resource": "pods", "name": name, "uid": site.pod(name).metadata.uid} for name in ("first", "second")]
    site.world.patch(CLAIMS, "shared", {"status": {"reservedFor": users}}, "status")
    return site


def test_all_pods_that_use_a_claim_end_or_none_of_them() -> None:
    """Its devices are free when nobody uses it any more."""
    assert victims(shared_claim(priority=0)) == {"first", "second"}
    assert victims(shared_claim(priority=200)) is NoVictims.NONE


def test_nobody_ends_where_the_free_devices_would_not_suit_the_pod() -> None:
    """All devices that are free then have to match its selectors, as whenever it is planned."""
    site = PreemptionSite()
    site.running("low", GPUS)
    root = 'device.attributes["resource.kubernetes.io"].pcieRoot'
    site.create("picky", 1, selector=f'{root} == "pci0000:01"', priority=100)
    assert search(site, "picky") is NoVictims.NONE
    site.create("content", 1, selector=f'{root} != ""', priority=100)
    assert isinstance(search(site, "content"), DeviceVictims)


def test_nobody_ends_where_pods_that_are_ending_make_room() -> None:
    """Not even on a node where less important ones would be enough; a pod that does not end in time counts no longer.

    What pods give back that come not after the waiting one is held for nobody.
    """
    site = two_nodes()
    site.world.delete("ten")
    assert victims(site) == set()
    site.create("ten-too", GPUS, priority=10)
    assert search(site, "ten-too") is NoVictims.ENDING
    late = search(site, "high", after_seconds=GRACE_SECONDS + OVERDUE_SECONDS + 1.0)
    assert isinstance(late, DeviceVictims) and {pod.key[1] for pod in late.pods} == {"five", "five-too"}


def test_a_pod_that_is_ending_counts_as_gone_beside_the_victims() -> None:
    site = two_nodes()
    site.world.delete("five")
    assert victims(site) == {"five-too"}


def test_selectors_that_take_longer_than_a_step_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a preemption would end where a node's slices change after the first of several victims has gone."""
    site, begun, fits_on = PreemptionSite(), {0}, Demands.fits_on

    def slowly(demands: Demands, uid: str, view: NodeView, free: int, alternative: int) -> bool | None:
        is_begun = free in begun
        begun.add(free)
        return fits_on(demands, uid, view, free, alternative) if is_begun else None

    site.running("low", GPUS)
    monkeypatch.setattr(Demands, "fits_on", slowly)
    assert victims(site) == {"low"}


def test_nobody_ends_where_there_is_room_by_now() -> None:
    """The queue's last plan may be older than the room; it also accepts the pod's further alternatives."""
    site = PreemptionSite(2)
    site.running("low", GPUS)
    site.running("half", GPUS // 2)
    assert victims(site, GPUS // 2) is NoVictims.ROOM
    site.create("choosy", [GPUS, GPUS // 2], priority=100)
    assert search(site, "choosy") is NoVictims.ROOM


def test_a_pod_that_takes_long_to_end_keeps_nobody_from_preempting_others() -> None:
    """Its owner chooses the grace period, and when it is deleted."""
    site = PreemptionSite(2)
    site.running("slow", GPUS, priority=10, terminationGracePeriodSeconds=365 * 86_400)
    site.running("quick", GPUS, priority=20)
    site.world.delete("slow", None)
    assert victims(site) == {"quick"}
