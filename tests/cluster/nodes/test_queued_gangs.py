"""Gangs of the queue on real kubelets, without an extender: they start whole, and containers hold the planned GPUs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import Installation
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import pod
from tests.cluster.objects import PODS, Json
from tests.cluster.polling import eventually
from tests.cluster.queueing import OURS, PLAIN, SETTINGS
from topology.annotations import keys
from topology.annotations.records import decode_placement

MACHINES = {"n0": "hgx_h100", "n1": "dgx1v", "n2": "two_islands"}
LONGEST_HALF_SECONDS = 60.0
"""After which the alert for half gangs counts them; a restart of the planner is shorter."""
_AT_ONCE = 4
"""Gangs that wait, start or end."""


@pytest.fixture
def queued(node_plane: Installation) -> Iterator[GpuCluster]:
    """Lend the control plane of `nodes` with a planner, and a kube-scheduler that knows no extender; take it before `nodes`."""
    planner = node_plane.extender(SETTINGS)
    with node_plane.upgraded("extender.config.queue.enabled=true"), planner.running():
        node_plane.plane.start_scheduler({"profiles": [{"schedulerName": PLAIN}]})
        yield GpuCluster(node_plane.plane, planner)


@dataclass(slots=True)
class GangChurn:
    """Random gangs that fit on the empty nodes; each is judged when all its containers run, and deleted then."""

    cluster: GpuCluster
    nodes: Nodes
    gangs: int
    kills: int
    """Of the planner, spread over the gangs."""
    chance: Random
    judged: int = 0
    killed: int = 0
    wrong: list[str] = field(default_factory=list)
    """What containers hold instead of what was planned."""
    longest_half_seconds: float = 0.0
    """For which a gang was bound in parts."""
    _created: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    """Gang → its pods, until it is judged."""
    _half_since: dict[str, float] = field(default_factory=dict)

    def step(self) -> bool:
        """Create, judge, delete and kill; returns whether all gangs have run and gone, and all kills were made."""
        pods = self.cluster.api.list(PODS)
        gangs = {name: [each for each in pods if _gang_of(each) == name] for name in {*map(_gang_of, pods)}}
        for name in [*self._sizes]:
            members = gangs.get(name, [])
            if sum(each["status"]["phase"] == "Running" for each in members) == self._sizes[name]:
                self._judge(name, members)
            else:
                self._measure_half(name, sum("nodeName" in each["spec"] for each in members))
        if self.killed < self.kills and self.judged * (self.kills + 1) >= self.gangs * (self.killed + 1):
            self.cluster.extender.kill()
            self.cluster.extender.run()
            self.killed += 1
        for _ in range(min(_AT_ONCE - len(gangs), self.gangs - self._created)):
            self._create()
        return self.judged == self.gangs and self.killed == self.kills and not pods

    def _create(self) -> None:
        name = f"g{self._created}"
        size, gpus = self.chance.choice(((2, 1), (2, 8), (3, 2), (3, 8), (4, 4), (5, 2), (6, 1), (6, 4)))
        words = {keys.GROUP: name, keys.GROUP_SIZE: str(size), keys.GANG: "required"}
        spec = {"schedulerName": PLAIN, "schedulingGates": [OURS]}
        self.cluster.submit(*(pod(f"{name}-{number}", gpus, annotations=words, **spec) for number in range(size)))
        self._created += 1
        self._sizes[name] = size

    def _judge(self, name: str, members: list[Json]) -> None:
        """Compare what was planned with what the kubelets list; a GPU that a node lists twice is wrong, too."""
        held = {node.name: node.held() for node in self.nodes}
        for each in members:
            pod_name, node = each["metadata"]["name"], each["spec"]["nodeName"]
            planned = decode_placement(each["metadata"]["annotations"][keys.PLACEMENT]).containers
            listed = {container: gpus for (owner, container), gpus in held[node].items() if owner == pod_name}
            if {container: {*gpus} for container, gpus in planned.items()} != listed:
                self.wrong.append(f"{pod_name} on {node}: planned {planned}, holds {listed}")
        for node, containers in held.items():
            holders = Counter(gpu for gpus in containers.values() for gpu in gpus)
            self.wrong += [f"{gpu} of {node}: {count} containers" for gpu, count in holders.items() if count > 1]
        for each in members:
            self.cluster.delete(each["metadata"]["name"])
        del self._sizes[name]
        self.judged += 1

    def _measure_half(self, name: str, bound: int) -> None:
        if bound in (0, self._sizes[name]):
            self._half_since.pop(name, None)
            return
        now = time.monotonic()
        self.longest_half_seconds = max(self.longest_half_seconds, now - self._half_since.setdefault(name, now))


def _gang_of(item: Json) -> str:
    return str(item["metadata"]["annotations"][keys.GROUP])


def test_gangs_start_whole_on_their_planned_gpus_though_the_planner_is_killed(
    queued: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """A gang of 24 GPUs needs all nodes to be empty; one that stays half would keep it from them for ever."""
    for node in nodes.start(MACHINES):
        enforcing(node)
    gangs = rounds(8, 100)
    churn = GangChurn(queued, nodes, gangs, rounds(2, 20), Random(7))
    eventually(churn.step, 60.0 * gangs)
    assert churn.wrong == []
    assert churn.longest_half_seconds < LONGEST_HALF_SECONDS
    half = f"half for at most {churn.longest_half_seconds:.1f} s"
    figure(f"{gangs} gangs on {len(MACHINES)} real kubelets without an extender, {churn.killed} kills: whole, {half}")
