"""The extender and the simulator decide alike: pod by pod, on the trace's own nodes, in one process and without a clock."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from benchmarks.placement.cluster import Allotment, Cluster
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.traces.openb import OpenbTrace
from benchmarks.served.objects import node_of, pod_of
from benchmarks.served.replay import ReplayTrace, course_of
from benchmarks.shared import shared_folder
from benchmarks.simulated.double.resources import NODES, PODS
from extender.binding.outcome import Bound
from extender.cluster.objects import kinds
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from extender.verbs.wire import MAX_SCORE
from tests.extender.builders import args
from tests.extender.world import Replica, World

TRACE = shared_folder() / "traces" / "openb"


class Extender:
    """Its verbs, called as kube-scheduler calls them, on nodes that the simulated cluster has too."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = World()
        self.world.store.delete(NODES, "", "n1")
        for node in cluster.nodes:
            self.world.store.create(NODES, "", node_of(name_of(node.index), node.server))
        self.replica = Replica(self.world)
        self.replica.state.cpu.replaced([])

    def place(self, number: int, pod: PodSize) -> Allotment | None:
        """Return where the pod went, if anywhere."""
        name, state = f"pod-{number}", self.replica.state
        made = msgspec.convert(self.world.store.create(PODS, "default", pod_of(name, pod)), kinds.Pod)
        self.replica.catch_up()
        for _ in state.values.appraise():
            pass
        fitting = [name_of(node.index) for node in self.cluster.nodes if node.fits_beside_gpus(pod)]
        passed = filter_nodes(state, args(made, *fitting), self.replica.clock(), candidates=16).node_names
        if not passed:
            self.world.delete(name)
            return None
        scores = {each.host: each.score for each in prioritize_nodes(state, args(made, *passed), self.replica.clock())}
        (best,) = (host for host, score in scores.items() if score == MAX_SCORE)
        bound = self.replica.bind(name, best)
        assert isinstance(bound, Bound)
        self.replica.catch_up()
        state.cpu.changed(msgspec.convert(self.world.store.get(PODS, "default", name), kinds.Pod))
        (gpus,) = bound.record.containers.values()
        return Allotment(int(best[1:]), tuple(int(gpu.rpartition("-")[2]) for gpu in gpus), pod)


def name_of(index: int) -> str:
    return f"n{index:04}"


def course(workload: str) -> ReplayTrace:
    if not TRACE.is_dir():
        pytest.skip("the published trace is not beside the checkout")
    return course_of(OpenbTrace(TRACE), workload, 12, 42)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["default", "gpushare100", "gpuspec33"])
def test_each_pod_gets_the_same_gpus_of_the_same_node(workload: str) -> None:
    """What they learn of the mix on the way included."""
    found = course(workload)
    cluster = Cluster(found.servers)
    simulated, extender = policy_for_pods("gputopo", found.kinds)(cluster, Random(0)), Extender(cluster)
    seen = Counter[bool]()
    for number, pod in enumerate(found.arrivals):
        expected = simulated.place(Job(number, float(number), float("inf"), (pod,)))
        with extender.world.unchecked():  # that is asked of the binding elsewhere, and costs more than all else
            placed = extender.place(number, pod)
        assert ([placed] if placed else None) == (list(expected) if expected else None), (number, pod)
        seen[placed is not None] += 1
        if placed is not None:
            cluster.take(placed)
    assert min(seen[True], seen[False]) > 5
