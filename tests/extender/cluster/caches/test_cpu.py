"""CPU that runs out leaves GPUs idle: what is asked for on each node is known, and counts where a pod goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.caches.cpu import CpuInUse, cpu_only
from extender.cluster.objects.kinds import Container, ObjectMeta, Pod, PodSpec, PodStatus, ResourceRequirements
from extender.cluster.objects.pod_demand import asked_by
from extender.cluster.objects.quantities import cpu_milli
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes
from tests.extender.builders import args, at, cluster, node, pod
from topology.value.demand import PRIOR_PODS


def other(name: str, on: str | None, cpu: str, phase: str = "Running") -> Pod:
    """Build a pod that asks for CPU and no GPU."""
    asked = ResourceRequirements(requests={"cpu": cpu})
    return Pod(ObjectMeta(name, "ml", name), PodSpec(on, containers=[Container("main", asked)]), PodStatus(phase))


def used_to(cpu: str, *nodes: object) -> ClusterState:
    """Return a cluster that has seen many pods of one GPU and that much CPU, and has thought about them."""
    state = cluster(*nodes)  # type: ignore[arg-type]
    for number in range(int(2 * PRIOR_PODS)):
        state.pods.changed(pod(f"past-{number}", 1, cpu=cpu))
    for _ in state.values.appraise():
        pass
    return state


def free_milli(*pods: Pod) -> int | None:
    in_use = CpuInUse(lambda _: None)
    in_use.replaced(pods)
    return in_use.free_milli(node("n1", cpu="64"))


def test_all_pods_of_a_node_count_until_they_end() -> None:
    """With and without GPUs; as kube-scheduler counts."""
    assert free_milli(other("a", "n1", "1500m"), pod("b", 2, on="n1", cpu="8"), other("c", "n2", "9")) == 54_500
    assert free_milli(other("a", "n1", "8", phase="Succeeded"), other("b", None, "9")) == 64_000


def test_pod_that_grows_ends_or_goes_changes_the_sum() -> None:
    """Events come one by one."""
    touched: list[str] = []
    in_use = CpuInUse(touched.append)
    for item in (other("a", "n1", "8"), other("a", "n1", "8"), other("a", "n1", "10"), other("b", "n1", "3")):
        in_use.changed(item)
    assert (in_use.free_milli(node("n1", cpu="64")), touched) == (51_000, ["n1"] * 4)
    in_use.changed(other("a", "n1", "10", phase="Failed"))
    in_use.deleted(other("b", "n1", "3"))
    assert in_use.free_milli(node("n1", cpu="64")) == 64_000


def test_node_without_a_word_on_its_cpu_is_judged_by_its_gpus() -> None:
    """Nobody knows is not the same as none left."""
    assert CpuInUse(lambda _: None).free_milli(node("n1")) is None
    assert CpuInUse(lambda _: None).free_milli(node("n1", cpu="many")) is None


def test_requests_of_the_pod_as_a_whole_and_its_runtime_count() -> None:
    """As kube-scheduler counts: the pod's own word instead of its containers', the overhead on top."""
    container = Container("main", ResourceRequirements(requests={"cpu": "2"}))
    spec = PodSpec(containers=[container], resources=ResourceRequirements({"cpu": "5"}), overhead={"cpu": "250m"})
    assert cpu_milli(Pod(spec=spec)) == 5250


def test_init_container_counts_beside_the_sidecars_before_it() -> None:
    """And only where it takes more than what runs afterwards."""

    def container(cpu: str, policy: str | None = None) -> Container:
        return Container(cpu, ResourceRequirements(requests={"cpu": cpu}), policy)

    starting = [container("1", "Always"), container("7"), container("2", "Always")]
    assert cpu_milli(Pod(spec=PodSpec(init_containers=starting, containers=[container("3")]))) == 8000
    assert cpu_milli(Pod(spec=PodSpec(init_containers=starting, containers=[container("6")]))) == 9000


def test_parts_of_a_thousandth_add_up_before_the_sum_is_rounded_up() -> None:
    """Neither is anything lost of two containers, nor does each of them count for more."""
    containers = [Container(cpu, ResourceRequirements(requests={"cpu": cpu})) for cpu in ("1500u", "0.0021", "1m")]
    assert cpu_milli(Pod(spec=PodSpec(containers=containers))) == 5


def test_pod_that_needs_much_cpu_goes_where_gpus_keep_theirs() -> None:
    """The wires are alike; beside the other pod the free GPUs would be left without cores."""
    state = used_to("8", node("a", cpu="96"), node("b", cpu="96"), other("web", "a", "48"))
    assert filter_nodes(state, args(pod("p", 1, cpu="16"), "a", "b"), at()).node_names == ["b", "a"]


def test_pod_that_needs_no_cpu_takes_gpus_that_lack_it() -> None:
    """Nobody else could use them."""
    state = used_to("8", node("a", cpu="96"), node("b", cpu="96"), other("web", "b", "64"))
    assert filter_nodes(state, args(pod("p", 1), "a", "b"), at()).node_names == ["b", "a"]


@given(st.sampled_from(["n1", None]), st.sampled_from(["0", "250m", "3", "x"]), st.sampled_from(["Running", "Failed"]))
def test_what_is_kept_of_a_pod_is_all_that_counts(on: str | None, cpu: str, phase: str) -> None:
    """And the rest costs no memory."""
    whole = other("p", on, cpu, phase)
    kept = cpu_only(whole, asked_by(whole))
    assert free_milli(whole) == (free_milli(kept) if kept else 64_000)


def test_pods_with_gpus_are_kept_whole() -> None:
    """What they say decides about GPUs."""
    feed, wanted = PodFeed(cluster()), pod("p", 1, on="n1", cpu="4")
    assert feed.keep(wanted) == wanted
    assert feed.keep(other("p", None, "4")) is None


def test_cpu_that_comes_and_goes_makes_no_new_candidate() -> None:
    """Other pods do not keep the one that was refused from being offered all nodes."""
    state = cluster(*(node(name, cpu="64") for name in ("n1", "n2")))
    asked, feed = pod("p", 8, cpu="8"), PodFeed(state)
    first = filter_nodes(state, args(asked, "n1", "n2"), at(), candidates=1).node_names
    feed.changed(other("web", first[0], "8"))
    second = filter_nodes(state, args(asked, "n1", "n2"), at(), candidates=1).node_names
    assert {*first, *second} == {"n1", "n2"}
