"""Several allocate at once: two of our planners, and kube-scheduler for claims of NVIDIA's class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from benchmarks.simulated.fleet import gpu_pod
from extender.config.defaults import QUEUE_LEASE
from extender.features.dra.taints import RULES
from tests.cluster.api import Api
from tests.cluster.binaries import is_oldest
from tests.cluster.claims import ALL_CLAIMS, API, CLAIMS, GPUS, ever_twice
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import ExtenderProcess
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import recorded
from tests.cluster.objects import ALL_PODS, PODS, Json
from tests.cluster.planned_claims import SETTINGS, claiming, claims_planned, dra_node, join, planner_of, template
from tests.cluster.polling import eventually
from tests.manifests.rendered import NAMESPACE
from tests.world.kubelets import running_kubelets

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_oldest(), reason="Kubernetes 1.30 has no resource.k8s.io/v1")]

THEIRS: Final = "theirs"
"""A namespace where claims of NVIDIA's class may be."""
SIZES: Final = (1, 2, 4, 8, 3, 2, 1, 5)
AT_ONCE: Final = 40
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def plane(binaries: Path) -> Iterator[ControlPlane]:
    """Start a control plane with simulated kubelets."""
    with ControlPlane(binaries) as plane, running_kubelets(plane.kubeconfig()):
        yield plane


class Planners:
    """Two planners. One is killed now and then, or frozen until the other one plans: then both are at work for a moment."""

    def __init__(self, api: Api, *planners: ExtenderProcess) -> None:
        self.killed = self.frozen = 0
        self._api, self._planners = api, planners
        self._chance = Random(0)
        self._frozen: ExtenderProcess | None = None

    def trouble(self) -> None:
        """In turn, freeze the one that plans, as soon as there is one and none is frozen; or kill one, and start it again."""
        if self.frozen > self.killed:
            victim = self._chance.choice([planner for planner in self._planners if planner is not self._frozen])
            victim.kill()
            victim.start()
            self.killed += 1
        elif not self._frozen and (leader := self._leader()):
            leader.freeze()
            self._frozen = leader
            self.frozen += 1

    def look(self) -> None:
        """Let the frozen one go on where it was, if another one plans."""
        if self._frozen and (leader := self._leader()) and leader is not self._frozen:
            self._frozen.thaw()
            self._frozen = None

    def is_whole(self) -> bool:
        """Whether none is frozen."""
        return self._frozen is None

    def _leader(self) -> ExtenderProcess | None:
        """Return the one that holds the Lease."""
        (lease,) = self._api.list(LEASES, fieldSelector=f"metadata.name={QUEUE_LEASE}")
        holder = lease["spec"].get("holderIdentity") or ""
        return next((one for one in self._planners if holder.endswith(f":{one.url.rpartition(':')[2]}")), None)


def test_two_planners_give_no_device_twice_and_lose_none(
    plane: ControlPlane, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Each is killed at any moment, or frozen until its Lease is the other one's."""
    count, troubles = rounds(60, 2000), rounds(3, 30)
    with claims_planned(plane) as cluster, planner_of(plane, "second").running() as second:
        join(cluster, *(dra_node(f"n{number}") for number in range(16)))
        planners, ran = Planners(cluster.api, cluster.extender, second), set[str]()
        waiting = [claiming(f"p{number}", SIZES[number % len(SIZES)]) for number in range(count)]

        def look() -> bool:
            planners.look()
            alive = cluster.api.list(PODS)
            batch = waiting[: max(0, AT_ONCE - len(alive))]
            del waiting[: len(batch)]
            cluster.submit(*batch)
            for pod in alive:
                if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                    cluster.delete(pod["metadata"]["name"])
                    ran.add(pod["metadata"]["name"])
            done = planners.frozen + planners.killed
            if done < troubles and len(ran) * (troubles + 1) >= count * (done + 1):
                planners.trouble()
            return done == troubles and not waiting and not alive and planners.is_whole()

        with recorded(cluster.api, [CLAIMS]) as claims:
            eventually(look, 15.0 * count)
        assert len(ran) == count
        assert ever_twice(claims) == set()
        eventually(lambda: not any(cluster.ledger(f"n{number}").claims for number in range(16)))
        figure(f"{count} claims, two planners, {planners.killed} kills, {planners.frozen} freezes: 0 doubles, 0 stuck")


@pytest.mark.parametrize("is_policed", [True, False], ids=["policy", "no policy"])
def test_no_device_is_used_by_a_planned_claim_and_by_one_of_nvidias_class(
    plane: ControlPlane, rounds: Callable[[int, int], int], figure: Callable[[str], None], *, is_policed: bool
) -> None:
    """kube-scheduler allocates claims of an exempt namespace, or there is no policy; the devices are just enough for all.

    How long kube-scheduler may be behind is a matter of the machine, so this is for a quiet one.
    """
    count = rounds(0, 200)
    if not count:
        pytest.skip("a busy machine may be behind for longer than an allocation settles: only with --long")
    chart = (
        (f"policies.claims.exemptNamespaces={{{THEIRS}}}",)
        if is_policed
        else ("policies.enabled=false", "extender.config.dra.unguarded=true")
    )
    dra = {**SETTINGS["dra"], "unguarded": not is_policed}
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": THEIRS}})
    plane.admin.post(f"/api/v1/namespaces/{THEIRS}/serviceaccounts", {"metadata": {"name": "default"}})
    with claims_planned(plane, *chart, settings={**SETTINGS, "dra": dra}) as cluster:
        template(cluster.api, "nvidia-1", GPUS, f"{API}/namespaces/{THEIRS}/resourceclaimtemplates", count=1)
        join(cluster, *(dra_node(f"n{number}") for number in range(-(-2 * count // 8) + 1)))
        with recorded(cluster.api, [ALL_CLAIMS]) as claims:
            for number in range(count):
                cluster.api.post(f"/api/v1/namespaces/{THEIRS}/pods", of_nvidia(f"theirs{number}"))
                cluster.api.post(PODS, claiming(f"ours{number}", 1))
            eventually(lambda: len(running(cluster)) == 2 * count, 180)
        assert ever_twice(claims, is_reserved=True) == set()
        eventually(lambda: cluster.extender.metric("dra_tainted_devices") == 0)
        assert cluster.api.list(RULES) == []
        taken_back = cluster.extender.metric('dra_allocations_total{outcome="taken-back"}')
        figure(
            f"{count} pods of NVIDIA's class against {count} of ours, {'policy' if is_policed else 'no policy'}: "
            f"{len(ever_twice(claims))} devices in two claims for a moment, 0 used by two, 0 stuck, {taken_back:.0f} taken back"
        )


def of_nvidia(name: str) -> Json:
    """Return a pod with a claim of NVIDIA's class."""
    pod = gpu_pod(name, 0)
    pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "nvidia-1"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return pod


def running(cluster: GpuCluster) -> list[Json]:
    return [pod for pod in cluster.api.list(ALL_PODS) if pod["status"].get("phase") == "Running"]
