"""The simulated product is the product: its choices are the extender's answers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from benchmarks.placement.cluster import Allotment, Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import UnknownPolicy, check_policy, policy_for_pods
from benchmarks.placement.product import Gputopo, kind_of
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.benchmarks.placement.builders import cluster_of, job
from tests.extender.builders import args, at, gpus, node, pod, running
from tests.extender.builders import cluster as cluster_state
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.effort import finish
from topology.formats.catalog import machine
from topology.node.status import DevicePluginStatus, Mode, NodeGpuStatus
from topology.placement.decide import Situation, decide
from topology.placement.nvidia_best_effort import outcomes
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import Communication, GpuRequest
from topology.value.demand import PRIOR_PODS


def test_the_gpus_are_those_of_the_decision() -> None:
    """On one node there is nothing but `decide` to decide."""
    cluster = cluster_of("dgx-1v")
    placed = policy_for_pods("gputopo", [])(cluster, Random(0)).place(job(0, 4))
    verdict = decide(Situation(TopologyClass(machine("dgx-1v")), 0xFF), GpuRequest.plain(4))
    assert isinstance(verdict, Placement)
    assert placed is not None
    assert placed[0].gpus == verdict.gpus


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_the_node_is_the_extenders_answer(seed: int) -> None:
    """On three cube meshes in any state: filter and prioritize name the node, and give it the only 10."""
    random = Random(seed)
    used = [tuple(sorted(random.sample(range(8), random.randint(0, 4)))) for _ in range(3)]
    asking = job(0, random.choice([1, 2, 4]))
    cluster = cluster_of("dgx-1v", "dgx-1v", "dgx-1v")
    for index, positions in enumerate(used):
        if positions:
            cluster.take(Allotment(index, positions, PodSize(len(positions))))
    simulated = policy_for_pods("gputopo", [])(cluster, random).place(asking)

    nodes = [node(f"n{index}", "dgx-1v") for index in range(3)]
    pods = [
        running(f"p{index}", f"n{index}", *gpus(f"n{index}", *positions, machine_name="dgx-1v"))
        for index, positions in enumerate(used)
        if positions
    ]
    state = cluster_state(*nodes, *pods)
    finish(state.values.appraise())
    asked = args(pod("asking", asking.gpus), "n0", "n1", "n2")
    passed = filter_nodes(state, asked, at()).node_names or []
    scores = {found.host: found.score for found in prioritize_nodes(state, args(asked.pod, *passed), at())}
    assert simulated is not None
    assert [host for host, score in scores.items() if score == 10] == [f"n{simulated[0].node}"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_where_agents_observe_the_node_is_the_extenders_and_the_gpus_are_the_plugins(seed: int) -> None:
    """The extender names the node by its forecast; NVIDIA's plugin hands out one of the sets that the forecast counts with."""
    random = Random(seed)
    used = [tuple(sorted(random.sample(range(8), random.randint(0, 4)))) for _ in range(3)]
    asking = job(0, random.choice([2, 4]))
    cluster = cluster_of("dgx-1v", "dgx-1v", "dgx-1v")
    for index, positions in enumerate(used):
        if positions:
            cluster.take(Allotment(index, positions, PodSize(len(positions))))
    simulated = policy_for_pods("gputopo-observe", [])(cluster, random).place(asking)

    status = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.OBSERVE, ready=True)))
    state = cluster_state(
        *(node(f"n{index}", "dgx-1v", status=status) for index in range(3)),
        *(
            running(f"p{index}", f"n{index}", *gpus(f"n{index}", *positions, machine_name="dgx-1v"))
            for index, positions in enumerate(used)
            if positions
        ),
    )
    finish(state.values.appraise())
    for view in state.views.values():
        view.shape.decide(GpuRequest.plain(asking.gpus))  # beside calls, as forecasts take more than one call may
    best = (filter_nodes(state, args(pod("asking", asking.gpus), "n0", "n1", "n2"), at()).node_names or [])[0]
    assert simulated is not None
    assert best == f"n{simulated[0].node}"
    free = cluster.nodes[simulated[0].node].free
    possible = {outcome.gpus for outcome in outcomes(machine("dgx-1v"), free, asking.gpus)}
    assert simulated[0].mask in possible


def test_the_plugin_breaks_islands_that_we_would_keep() -> None:
    """Observing is another experiment than enforcing: on the same jobs other GPUs are chosen."""
    chosen = {}
    for name in ("gputopo", "gputopo-observe"):
        cluster = cluster_of("dgx-1v")
        policy = policy_for_pods(name, [])(cluster, Random(3))
        masks = []
        for number in range(4):
            placed = policy.place(job(number, 1))
            assert placed is not None
            cluster.take(placed[0])
            masks.append(placed[0].mask)
        chosen[name] = masks
    assert chosen["gputopo"] != chosen["gputopo-observe"]


def test_a_plugin_that_hands_out_whole_gpus_is_not_compared_where_pods_share_them() -> None:
    """The text says so; nothing is run that means something else."""
    with pytest.raises(UnknownPolicy, match="whole GPUs"):
        policy_for_pods("gputopo-observe", [PodSize(1, gpu_milli=500)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_where_cpu_runs_out_the_node_is_still_the_extenders_answer(seed: int) -> None:
    """The wires are alike; what counts is the CPU that other pods have left, and how much the pods before took."""
    random = Random(seed)
    cores = dict(zip(("n0", "n1", "n2"), random.sample(range(0, 90, 6), 3), strict=True))
    wants = random.choice([0, 4, 16])
    cluster = cluster_of(*["dgx-1v"] * 3, cpu_milli=96_000)
    for index, taken in enumerate(cores.values()):
        cluster.take(Allotment(index, (), PodSize(0, cpu_milli=1000 * taken)))
    policy = Gputopo(cluster)
    past = [job(number, pod=PodSize(1, cpu_milli=8000)) for number in range(1, 1 + 2 * int(PRIOR_PODS))]
    for each in past:
        policy.values.meet(str(each.number), kind_of(each.pods[0]), running=False)
    simulated = policy.place(job(0, pod=PodSize(1, cpu_milli=1000 * wants)))

    nodes = [node(name, "dgx-1v", cpu="96") for name in cores]
    beside = [pod(f"on-{name}", 0, on=name, cpu=str(taken)) for name, taken in cores.items()]
    state = cluster_state(*nodes, *beside, *(pod(f"past-{each.number}", 1, cpu="8") for each in past))
    asking = pod("asking", 1, cpu=str(wants))
    state.pods.changed(asking)
    finish(state.values.appraise())
    best = (filter_nodes(state, args(asking, *cores), at()).node_names or [])[0]
    assert simulated is not None
    assert best == f"n{simulated[0].node}"


@pytest.mark.parametrize("seed", range(6))
def test_a_gang_goes_where_the_extender_puts_it_pod_by_pod(seed: int) -> None:
    """Three racks of three machines, some in use: the same nodes in the same order."""
    random = Random(seed)
    racks = {f"n{index}": "abc"[index % 3] for index in range(9)}
    busy = random.sample(sorted(racks), random.randint(0, 4))
    cluster = Cluster([ServerSpec(name, machine("dgx-a100"), leaf=rack) for name, rack in racks.items()])
    for name in busy:
        cluster.take(Allotment(int(name[1:]), tuple(range(8)), PodSize(8)))
    size = random.randint(2, 9 - len(busy))
    simulated = Gputopo(cluster).place(Job(0, 0.0, 1.0, (PodSize(8),) * size))

    nodes = [node(name, labels={"topology.kubernetes.io/rack": rack}) for name, rack in racks.items()]
    state = cluster_state(*nodes, *(running(f"on-{name}", name, *gpus(name, *range(8))) for name in busy))
    wants = {keys.GROUP: "gang", keys.GROUP_SIZE: str(size)}
    found = []
    for number in range(size):
        asked = args(pod(f"p{number}", 8, wants=wants), *racks)
        passed = filter_nodes(state, asked, at()).node_names or []
        best = next(each.host for each in prioritize_nodes(state, args(asked.pod, *passed), at()) if each.score == 10)
        placed = gpus(best, *range(8))
        state.pods.changed(pod(f"p{number}", 8, on=best, placed=placed, phase="Running", terminated=False, wants=wants))
        found.append(best)
    assert simulated is not None
    assert found == [f"n{allotment.node}" for allotment in simulated]


@pytest.mark.slow
def test_jobs_that_waited_while_others_came_are_learnt_from_once_each() -> None:
    """What is asked for does not depend on when there was room for it."""
    full = cluster_of("dgx-1v")
    full.take(Allotment(0, tuple(range(8)), PodSize(8)))
    policy = Gputopo(full)
    for number in (1, 0, 1, *range(2, int(PRIOR_PODS) * 2)):
        policy.place(job(number, 2 if number else 4))
    assert abs(dict(policy.values.demand)[4] - (0.2 * 32 + 1) / (32 + 49)) < 1e-9


def test_lambda_is_read_from_the_name() -> None:
    """`gputopo@0` looks at the pod alone; a word that is no number is refused with the names that there are."""
    for name in ("gputopo@0", "gputopo@0.5:8", "gputopo-told@1", "gputopo-required@1"):
        check_policy(name)
    with pytest.raises(UnknownPolicy, match="stock-least"):
        check_policy("gputopo@much")


@pytest.mark.parametrize(
    ("policy", "machine_name", "communication", "starts"),
    [
        ("gputopo", "dgx-1v", Communication.HEAVY, True),
        ("gputopo-required", "dgx-1v", Communication.HEAVY, False),
        ("gputopo-required", "dgx-1v", Communication.LIGHT, True),
        ("gputopo-required", "l40s-8", Communication.HEAVY, True),
    ],
)
def test_only_owners_who_insist_wait_for_a_ring_that_the_machine_can_have(
    policy: str, machine_name: str, communication: Communication, starts: bool
) -> None:
    """GPUs 0 and 5 are free, which a DGX-1V joins by PCIe; an L40S server has no NVLink to wait for."""
    cluster = cluster_of(machine_name)
    cluster.take(Allotment(0, (1, 2, 3, 4, 6, 7), PodSize(6)))
    asking = replace(job(0, 2), communication=communication)
    placed = policy_for_pods(policy, [])(cluster, Random(0)).place(asking)
    assert (placed is not None) is starts
