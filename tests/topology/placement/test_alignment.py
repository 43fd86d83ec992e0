"""What the kubelet's topology manager will say is predicted as it says it, and a plan keeps to it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

from tests.topology.placement.kubelet import Kubelet, Refused
from topology.bandwidth.rings import members_of
from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager
from topology.node.model import Gpu, NodeTopology
from topology.placement.alignment import NOT_YET, SPREAD, TOO_MANY_NUMA_NODES, align
from topology.placement.decide import Situation, decide
from topology.placement.plan import Parts
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import UNKNOWN_GPUS, Placement, Reason, Rejection
from topology.request.gpu_request import ContainerGpus, GpuRequest, widest


def machine(*numa_nodes: int | None) -> TopologyClass:
    """Return a machine with a GPU near each of these NUMA nodes."""
    return TopologyClass(NodeTopology(tuple(Gpu(i, f"g{i}", "m", numa_node=n) for i, n in enumerate(numa_nodes))))


TWO_BY_FOUR = machine(0, 0, 0, 0, 1, 1, 1, 1)
ALL = 0xFF
CPUS = (NumaCpus(0, 8, 7), NumaCpus(1, 8, 7))


def decided(policy: Policy, gpus: int, free: int = ALL, **others: object) -> Placement | Rejection:
    """Return what is decided for a plain pod on two NUMA nodes of four GPUs."""
    situation = Situation(TWO_BY_FOUR, free, topology_manager=TopologyManager(policy))
    return decide(replace(situation, **others), GpuRequest.plain(gpus))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "gpus", "free", "is_admitted"),
    [
        (Policy.SINGLE_NUMA_NODE, 4, 0b1111_1111, True),
        (Policy.SINGLE_NUMA_NODE, 5, 0b1111_1111, False),
        (Policy.SINGLE_NUMA_NODE, 2, 0b0001_0001, False),
        (Policy.RESTRICTED, 5, 0b1111_1111, True),
        (Policy.RESTRICTED, 2, 0b0001_0001, False),
        (Policy.BEST_EFFORT, 2, 0b0001_0001, True),
    ],
)
def test_a_pod_that_the_policy_would_refuse_does_not_fit(
    policy: Policy, gpus: int, free: int, *, is_admitted: bool
) -> None:
    """Five GPUs need both NUMA nodes, which `restricted` allows; two of two nodes do not, as one idle node would do."""
    found = decided(policy, gpus, free)
    assert isinstance(found, Placement) is is_admitted
    assert is_admitted or (isinstance(found, Rejection) and found.reason is Reason.KUBELET)


def test_the_refusal_names_the_policy_and_whether_waiting_helps() -> None:
    """Two GPUs come free one day; a NUMA node never has five."""
    now, never = decided(Policy.SINGLE_NUMA_NODE, 2, 0b0001_0001), decided(Policy.SINGLE_NUMA_NODE, 5)
    assert isinstance(now, Rejection)
    assert isinstance(never, Rejection)
    assert now.sentence == "the kubelet's policy single-numa-node would refuse 2 GPUs (wait or ask for fewer)"
    assert now.resolvable
    assert not never.resolvable
    assert "ask for what one NUMA node has, or change topologyManagerPolicy" in never.sentence


def test_gpus_come_from_where_the_kubelet_takes_them() -> None:
    """It takes the first NUMA node that has enough, whichever another choice would leave fuller."""
    found = decided(Policy.BEST_EFFORT, 2, 0b0011_1111)
    assert isinstance(found, Placement)
    assert set(found.gpus) <= {0, 1, 2, 3}


def test_whole_cpus_that_need_fewer_numa_nodes_than_the_gpus_are_refused() -> None:
    """Eight GPUs take two NUMA nodes and four CPUs one: no set is what both prefer."""
    request = GpuRequest(8, by_container=(ContainerGpus("", 8, cpus=4),))
    manager = TopologyManager(Policy.RESTRICTED, cpus=CPUS)
    found = decide(Situation(TWO_BY_FOUR, ALL, topology_manager=manager), request)
    assert isinstance(found, Rejection)
    assert found.message == "the kubelet's policy restricted would refuse 8 GPUs with 4 whole CPUs"
    assert not found.resolvable
    enough = replace(request, by_container=(ContainerGpus("", 8, cpus=12),))
    assert isinstance(decide(Situation(TWO_BY_FOUR, ALL, topology_manager=manager), enough), Placement)


def test_gpus_follow_the_cpus_that_are_left() -> None:
    """Where the first NUMA node has too few free CPUs both kinds come from the second."""
    manager = TopologyManager(Policy.SINGLE_NUMA_NODE, cpus=(NumaCpus(0, 8, 1), NumaCpus(1, 8, 7)))
    request = GpuRequest(2, by_container=(ContainerGpus("", 2, cpus=6),))
    found = decide(Situation(TWO_BY_FOUR, ALL, topology_manager=manager), request)
    assert isinstance(found, Placement)
    assert set(found.gpus) <= {4, 5, 6, 7}


def test_pods_on_their_way_keep_a_pod_waiting_only_where_they_make_a_difference() -> None:
    """Four GPUs are promised and not handed out: the kubelet still takes them for free, and would give them to this pod."""
    waits = decided(Policy.SINGLE_NUMA_NODE, 2, 0b1111_0000, perhaps_free=0b0000_1111)
    assert waits is NOT_YET
    assert isinstance(decided(Policy.SINGLE_NUMA_NODE, 2, 0b1111_1100, perhaps_free=0b11), Placement)
    unsure = decided(Policy.BEST_EFFORT, 2, 0b1111_0000, perhaps_free=0b0000_1111, plugin_chooses=True)
    assert isinstance(unsure, Placement), "it runs with whatever it gets"


def test_gpus_of_which_nobody_knows_who_holds_them_are_waited_for() -> None:
    """Which NUMA node has enough cannot be told."""
    assert decided(Policy.RESTRICTED, 2, unknown=1) is NOT_YET
    many = decided(Policy.RESTRICTED, 8, unknown=1)
    assert isinstance(many, Rejection)
    assert UNKNOWN_GPUS in many.message


def test_another_reason_comes_first() -> None:
    """A pod that fits nowhere is not told of the kubelet."""
    request = GpuRequest(5, models=("nothing",))
    manager = TopologyManager(Policy.SINGLE_NUMA_NODE)
    found = decide(Situation(TWO_BY_FOUR, ALL, topology_manager=manager), request)
    assert isinstance(found, Rejection)
    assert found.reason is Reason.UNSUITABLE_GPUS


def test_a_pod_that_would_fit_elsewhere_on_the_node_is_told_of_the_kubelet() -> None:
    """The model that is asked for is on the second NUMA node, and the kubelet would look at the first."""
    gpus = tuple(Gpu(i, f"g{i}", "a" if i < 2 else "b", numa_node=i // 2) for i in range(4))
    situation = Situation(TopologyClass(NodeTopology(gpus)), 0xF, topology_manager=TopologyManager(Policy.BEST_EFFORT))
    found = decide(situation, GpuRequest(1, models=("b",)))
    assert isinstance(found, Rejection)
    assert found.message.startswith("of the GPUs that the kubelet would choose from, ")


def test_a_machine_without_numa_nodes_is_not_concerned() -> None:
    """Devices without a NUMA node have no hints."""
    assert align(machine(None, None), TopologyManager(Policy.SINGLE_NUMA_NODE), 3, 0, (ContainerGpus("", 2),)) == ()


def test_more_numa_nodes_than_the_kubelet_takes_are_not_searched() -> None:
    """A forged topology does not make anybody search thousands of sets."""
    many = machine(*range(24))
    found = align(many, TopologyManager(Policy.RESTRICTED), (1 << 24) - 1, 0, (ContainerGpus("", 2),))
    assert found is TOO_MANY_NUMA_NODES


def scene(chance: Random) -> "Scene":
    """Return a small machine, some of it taken or promised, and a pod that might come to it."""
    numa_nodes = sorted(chance.choices(range(chance.randint(1, 3)), k=chance.randint(2, 8)))
    free, others = (chance.getrandbits(len(numa_nodes)) | chance.getrandbits(len(numa_nodes)) for _ in range(2))
    left = [chance.randint(0, 5) for _ in range(chance.randint(0, 3))]
    return Scene(
        numa_nodes,
        free,
        others & ~free if chance.random() < 0.5 else 0,
        tuple(NumaCpus(i, free + chance.randint(0, 2), free) for i, free in enumerate(left)),
        tuple(
            ContainerGpus("", chance.randint(0, 4), chance.random() < 0.3, cpus=chance.choice((0, 0, 0, 1, 4)))
            for _ in range(chance.choice((1, 2, 3)))
        ),
        TopologyManager(chance.choice([*Policy]), chance.choice([*Scope])),
        chance,
    )


@dataclass(frozen=True)
class Scene:
    """One node, and one pod."""

    numa_nodes: list[int]
    free: int
    promised: int
    """GPUs that other pods will get, and have not yet."""
    cpus: tuple[NumaCpus, ...]
    asking: tuple[ContainerGpus, ...]
    manager: TopologyManager
    chance: Random

    @property
    def is_possible(self) -> bool:
        """Whether kube-scheduler and plan would let the pod come, if it were not for NUMA nodes."""
        gpus = widest((each.gpus, each.init) for each in self.asking)
        cpus = widest((each.cpus, each.init) for each in self.asking)
        return 0 < gpus <= self.free.bit_count() and (not self.cpus or cpus <= sum(each.free for each in self.cpus))

    @property
    def is_for_cpus_to_say(self) -> bool:
        """Whether a container may be refused that has no GPU."""
        return self.manager.scope is Scope.CONTAINER and not all(each.gpus for each in self.asking)

    def predicted(self) -> Parts | Rejection:
        """Return what is foretold."""
        manager = replace(self.manager, cpus=self.cpus)
        return align(machine(*self.numa_nodes), manager, self.free, self.promised, self.asking)

    def chosen(self, parts: Parts | Rejection) -> set[int]:
        """Return some GPUs that the plan might choose; none for a pod that it would refuse."""
        if isinstance(parts, Rejection):
            return set()
        size = widest((each.gpus, each.init) for each in self.asking)
        pools = parts or ((self.free, size),)
        return {gpu for part, count in pools for gpu in self.chance.sample(members_of(part & self.free), count)}

    def admitted(self, chosen: set[int]) -> set[int] | None:
        """Return what a kubelet gives the pod whose plugin prefers the chosen GPUs; `None`: nothing."""

        def prefer(available: set[int], must: set[int], count: int) -> set[int]:
            others = sorted(available - must, key=lambda gpu: (gpu not in chosen, gpu))
            return must | set(others[: count - len(must)])

        come_first = self.chance.getrandbits(8)
        kubelet = Kubelet(
            self.manager.policy,
            self.manager.scope,
            dict(enumerate(self.numa_nodes)),
            {10 * each.numa_node + i: each.numa_node for each in self.cpus for i in range(each.total)},
            set(members_of(self.free | self.promised & come_first)),
            {10 * each.numa_node + i for each in self.cpus for i in range(each.free)},
            prefer,
        )
        try:
            return set[int]().union(*kubelet.admit(self.asking))
        except Refused:
            return None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_prediction_is_what_the_kubelet_does(seed: int, rounds: Callable[[int, int], int]) -> None:
    """Whoever of the promised pods comes first, a pod gets exactly the chosen GPUs, or is refused as foretold."""
    chance, outcomes = Random(seed), Counter[str]()
    for _ in range(rounds(1200, 12_000)):
        tried = scene(chance)
        if not tried.is_possible:
            continue
        parts = tried.predicted()
        if parts in (NOT_YET, SPREAD):
            outcomes["unknown"] += 1
            continue
        chosen = tried.chosen(parts)
        got = tried.admitted(chosen)
        if got is None:
            assert isinstance(parts, Rejection) or tried.is_for_cpus_to_say, tried
        else:
            assert not isinstance(parts, Rejection), tried
            assert got == chosen or parts == (), tried
        outcomes["refused" if got is None else "admitted"] += 1
    assert min(outcomes["admitted"], outcomes["refused"]) > 50, outcomes
