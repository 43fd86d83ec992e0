"""A queue is planned in kube-scheduler's order, each pod where filter and prioritize would want it beside those before it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.candidates.holds import Held, Hold
from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import (
    AffinityRules,
    Container,
    Node,
    NodeSpec,
    Pod,
    Present,
    ResourceRequirements,
    Taint,
    Toleration,
    Volume,
)
from extender.cluster.state import ClusterState
from extender.planning.queue import LEAD, LOOKED_AT, next_wanted, nodes_without, on_their_way
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod
from tests.extender.planning.queues import SCHEDULER, assignments, nominated, planned, waiting, waiting_share
from tests.extender.shares import SHARE_GIB, share, sharing_node
from topology.annotations import keys
from topology.request.gpu_request import GpuRequest


def one_by_one(state: ClusterState, *names: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Have kube-scheduler place the pods with all nodes in view, each held by its predicted winner."""
    found = {}
    for name in names:
        known = state.pods.find("ml", name)
        assert known
        passing = filter_nodes(state, args(known.pod, *state.views), at()).node_names
        if not passing:
            continue
        if len(passing) > 1:
            prioritize_nodes(state, args(known.pod, *passing), at())
        place = state.holds.places(0.0)[name]
        mask = state.holds.own(name, place, 0.0)
        found[name] = place, tuple(position for position in range(mask.bit_length()) if mask >> position & 1)
    return found


def test_pods_that_kube_scheduler_is_about_to_take_are_left_to_it() -> None:
    """The next few. Those that it is yet to ask about count among them; where it takes none, nobody is left out."""
    state = cluster(node("n1"), *(waiting(f"p{number}") for number in range(LEAD + 2)))

    def wanted(ahead: set[str] | None) -> list[str]:
        found = next_wanted(state, SCHEDULER, at(), at_most=100, ahead=ahead, may_begin=lambda _: True)
        return [each.pod.metadata.name for each in found]

    everybody = [f"p{number}" for number in range(LEAD + 2)]
    assert wanted(None) == everybody
    assert wanted(set()) == everybody[LEAD:]
    for name in everybody[:2]:
        state.holds.put(name, Hold("n1", 1, 99.0))
    assert wanted(set()) == everybody[LEAD + 2 :]
    assert wanted({"p0", "p1"}) == everybody[LEAD:]


def test_a_pod_that_was_refused_is_none_of_the_next() -> None:
    """kube-scheduler keeps it aside until something happens, and takes those behind it."""
    pods = [f"p{number}" for number in range(2 * LEAD + 1)]
    state = cluster(node("n1"), *map(waiting, pods))
    for name in pods[:LEAD]:
        state.memory.refusals.add(name, frozenset(), 0.0)
    found = next_wanted(state, SCHEDULER, at(), at_most=100, ahead=set(), may_begin=lambda _: True)
    assert [each.pod.metadata.name for each in found] == pods[:LEAD] + pods[2 * LEAD :]


def test_a_plan_says_what_full_view_would() -> None:
    """Mixed machines and sizes: node for node and GPU for GPU what filter and prioritize choose one after the other."""
    machines = [node(f"a{number}") for number in range(3)] + [node(f"b{number}", PAIRS) for number in range(3)]
    sizes = [1, 2, 4, 2, 1, 4, 8, 1, 2, 2]
    pods = [waiting(f"p{number}", size) for number, size in enumerate(sizes)]
    plan = {
        assignment.pod.metadata.name: (assignment.node, tuple(sorted(assignment.placement.gpus)))
        for assignment in assignments(cluster(*machines, *pods))
    }
    assert plan == one_by_one(cluster(*machines, *pods), *(each.metadata.name for each in pods))
    assert len(plan) == len(pods)


def test_shares_are_planned_as_full_view_would_give_them() -> None:
    """Beside whole GPUs and each other, of two classes and up to a bound: node for node and GPU for GPU."""
    machines = [sharing_node(max_gpus=2), sharing_node(name="n2", max_gpus=3)]
    pods = [
        waiting_share("a", 30),
        waiting_share("b", 20),
        waiting("c", 2),
        waiting_share("d", SHARE_GIB),
        waiting_share("e", 20, sharing_class="dev"),
        waiting_share("f", 10),
    ]
    found = assignments(cluster(*machines, *pods))
    plan = {
        assignment.pod.metadata.name: (assignment.node, tuple(sorted(assignment.placement.gpus)))
        for assignment in found
    }
    assert plan == one_by_one(cluster(*machines, *pods), *(each.metadata.name for each in pods))
    assert len(plan) == len(pods)


def test_no_gpu_is_planned_twice() -> None:
    """Whoever is planned later gets what is left."""
    plan = assignments(cluster(node("n1"), *(waiting(f"p{number}", 2) for number in range(6))))
    taken = [position for assignment in plan for position in assignment.placement.gpus]
    assert sorted(taken) == list(range(8))


def test_higher_priority_is_planned_first() -> None:
    """In kube-scheduler's order, whoever came first."""
    state = cluster(node("n1"), waiting("early", 8), waiting("urgent", 8, priority=5))
    assert planned(state) == {"urgent": "n1"}


def test_of_equal_priority_the_older_one_is_served() -> None:
    """A later pod that is larger never pushes it out."""
    state = cluster(node("n1"), waiting("a-early", 1), waiting("b-late", 8))
    assert planned(state) == {"a-early": "n1"}


def test_the_queue_is_planned_as_one_where_that_serves_more() -> None:
    """One by one the small pod takes a GPU of the only machine that the large one may have."""
    small, large = waiting("a", 1), waiting("b", 8, node_selector={"pool": "large"})
    machines = node("n1", labels={"pool": "large"}), node("n2")
    assert planned(cluster(*machines, small)) == {"a": "n1"}
    assert planned(cluster(*machines, small, large)) == {"a": "n2", "b": "n1"}


def test_what_is_on_its_way_to_others_is_left_to_them() -> None:
    """Held GPUs, and those that a pod will get which preemption has nominated."""
    preemptor = nominated(waiting("preemptor", 4), "n1", by_us=False)
    state = cluster(node("n1"), preemptor, waiting("a", 4), waiting("b", 4))
    assert planned(state) == {"a": "n1"}
    state.holds.put("held", Hold("n1", 0b1, 99.0))
    assert planned(state) == {}


def test_what_is_held_for_a_pod_that_has_claims_there_counts_once() -> None:
    """A share would be taken twice until the hold is released. On another node it is still to come."""
    (gpu,) = gpus("n1", 0)
    state = cluster(sharing_node(share(gpu, "x", 10)), sharing_node(name="n2"), waiting_share("x", 10))
    for node_name, left in (("n1", {}), ("n2", {"n2": Held(0, ((0, 10, ""),))})):
        state.holds.put("x", Hold(node_name, 0b1, 99.0, shares=((0, 10, ""),)))
        assert on_their_way(state, at()) == left


def test_gpus_that_are_held_for_a_pod_with_claims_on_another_one_count_all_the_same() -> None:
    """Its first GPU may be sick by now."""
    (gpu,) = gpus("n1", 0)
    state = cluster(node("n1", claims=(claim(gpu, "x"),)), waiting("x", 1))
    state.holds.put("x", Hold("n1", 0b10, 99.0))
    assert on_their_way(state, at()) == {"n1": Held(0b10)}


def test_what_the_queue_keeps_for_others_of_gpus_that_a_plan_holds_does_not_count_against_the_plan() -> None:
    """Their plan was made while these were being held: whole GPUs and shares alike."""
    state = cluster(sharing_node(), sharing_node(name="n2"))
    state.holds.put("own", Hold("n1", 0b1, 99.0, shares=((0, 10, ""),), is_firm=True))
    kept = {"n1": Held(0b11, ((0, 39, ""), (2, 39, "")))}
    nodes, waits = nodes_without(state, at(), kept, {"own"}), waiting_share("w", 39)
    request = GpuRequest(0, memory_gib=(39,))
    assert nodes.place_on(waits, request, "n1", Held(0, ((0, 39, ""),)))
    assert not nodes.place_on(waits, request, "n1", Held(0, ((1, 39, ""),)))
    assert not nodes.place_on(waits, request, "n1", Held(0, ((2, 39, ""),)))


def test_what_the_queue_has_sent_to_a_node_counts_by_its_claims_alone() -> None:
    """Without them it may go elsewhere, and would otherwise keep GPUs from others for as long as it exists."""
    sent = nominated(waiting("sent", 4, wants={keys.PLANNED: "n1"}), "n1")
    assert on_their_way(cluster(node("n1"), sent), at()) == {}


def test_nodes_that_labels_and_taints_forbid_are_passed_over() -> None:
    """As kube-scheduler would, so that the nomination comes true."""
    tainted = replace(node("n1"), spec=NodeSpec([Taint("gpu", "NoSchedule", "yes")]))
    soft = replace(node("n2", PAIRS, labels={"pool": "a"}), spec=NodeSpec([Taint("gpu", "PreferNoSchedule")]))
    pods = [
        waiting("tolerates", 8, tolerations=[Toleration("gpu", "Equal", "yes", "NoSchedule")]),
        waiting("selects", 8, node_selector={"pool": "a"}),
        waiting("z-selects-another", 1, node_selector={"pool": "b"}),
    ]
    assert planned(cluster(tainted, soft, *pods)) == {"tolerates": "n1", "selects": "n2"}
    assert planned(cluster(tainted, waiting("other"))) == {}


def test_pods_with_further_rules_are_left_to_kube_scheduler() -> None:
    """Affinity, spreading, claims of volumes or devices, groups: where they may go depends on more than is read here."""
    pods = [
        waiting("affine", affinity=AffinityRules()),
        waiting("spread", topology_spread_constraints=[Present()]),
        waiting("volume", volumes=[Volume(Present())]),
        waiting("claim", resource_claims=[Present()]),
        waiting("group", wants={keys.GROUP: "train", keys.GROUP_SIZE: "2"}),
        waiting("plain", volumes=[Volume()]),
    ]
    assert planned(cluster(node("n1"), *pods)) == {"plain": "n1"}


def test_a_node_without_cpu_is_passed_over() -> None:
    """Counting the pods that are planned onto it as well."""
    state = cluster(*_with_cpu())
    assert sorted(planned(state).values()) == ["n1", "n2"]


def _with_cpu() -> list[Node | Pod]:
    nodes = [node("n1", cpu="4"), node("n2", cpu="4")]
    asking = [pod(name, 1, cpu="3") for name in ("a", "b", "c")]
    return [*nodes, *(replace(each, spec=replace(each.spec, scheduler_name="gputopo")) for each in asking)]


@pytest.mark.parametrize(
    ("memory", "places"), [("1Pi", []), ("65Gi", ["n1"]), ("40Gi", ["n1", "n2"]), ("32Gi", ["n1", "n1", "n2"])]
)
def test_a_node_without_memory_is_passed_over(memory: str, places: list[str]) -> None:
    """Counting the pods that are planned onto it, and those with GPUs that are there. A node that tells nothing takes all."""
    occupant = with_memory(pod("there", 1, on="n2", placed=gpus("n2", 0), phase="Running", terminated=False), "30Gi")
    asking = [with_memory(waiting(name), memory) for name in ("a", "b", "c")]
    machines = [roomy("n1", "72Gi"), roomy("n2", "72Gi")]
    assert sorted(planned(cluster(*machines, occupant, *asking)).values()) == places
    assert len(planned(cluster(node("n1"), *asking))) == 3


def with_memory(item: Pod, memory: str) -> Pod:
    asked = item.spec.containers[0].resources.limits or {}
    containers = [Container("main", ResourceRequirements(asked | {"memory": memory}))]
    return replace(item, spec=replace(item.spec, containers=containers))


def roomy(name: str, memory: str) -> Node:
    built = node(name)
    return replace(built, status=replace(built.status, allocatable={"memory": memory}))


@pytest.mark.parametrize("wants", [{}, {keys.GROUP: "g"}], ids=["may-not-begin", "of-a-group"])
def test_one_tenants_queue_hides_nobody_behind_it(wants: dict[str, str]) -> None:
    """However many of its older pods cannot be planned: each namespace has its share of those that are looked at."""
    theirs = [of_namespace("evil", waiting(f"e{number}", wants=wants)) for number in range(LOOKED_AT + 1)]
    state = cluster(node("n1"), *theirs, waiting("victim"))

    def may_begin(item: GpuPod) -> bool:
        return bool(wants) or item.key[0] != "evil"

    found = next_wanted(state, SCHEDULER, at(), at_most=32, ahead=None, may_begin=may_begin)
    assert [each.pod.metadata.name for each in found] == ["victim"]


def of_namespace(namespace: str, item: Pod) -> Pod:
    return replace(item, metadata=replace(item.metadata, namespace=namespace))


def test_pods_of_other_schedulers_gates_and_placeholders_do_not_wait_here() -> None:
    """Nobody will look at a nomination of theirs now."""
    state = cluster(
        node("n1"),
        waiting("gated", scheduling_gates=[{"name": "x"}]),
        pod("other"),
        waiting("stands-for", wants={keys.PLACEHOLDER_FOR: "ml/x/y"}),
    )
    assert state.indexes.waiting.length(["gputopo"]) == 0
    assert planned(state) == {}
