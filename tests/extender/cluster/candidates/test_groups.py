"""Pods of a group find their way to one domain, one at a time, and whichever extender is asked."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from extender.cluster.objects.kinds import Node, ObjectMeta, OwnerReference, Pod
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.why import why
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from extender.verbs.preempt import preempt
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import DGX, PAIRS, args, at, claim, cluster, finish, gpus, node, pod, running
from topology.annotations import keys
from topology.annotations.codec import encode_topology
from topology.formats.catalog import machine
from topology.node.model import NvlinkDomain
from topology.request.domains import DOMAIN_LABELS, Level, Location

RACK_LABEL = "topology.kubernetes.io/rack"


def in_rack(name: str, machine_name: str = DGX, *, by: str = "", taken: tuple[str, ...] = ()) -> Node:
    """Build a node of the rack that its name begins with; `by` has claimed all of its GPUs, or those `taken`."""
    claims = tuple(claim(gpu, by) for gpu in taken or gpus(name, *range(8))) if by else ()
    return node(name, machine_name, claims=claims, labels={RACK_LABEL: name[0]})


def hall(**racks: int) -> list[Node]:
    """Build racks of so many empty nodes, `a1`, `a2` and so on."""
    return [in_rack(f"{rack}{number + 1}") for rack, count in racks.items() for number in range(count)]


def stranger(size: int) -> Pod:
    """Build the first pod of another group, which runs on a1."""
    wants = {keys.GROUP: "bert", keys.GROUP_SIZE: str(size)}
    return pod("q1", 8, on="a1", placed=gpus("a1", *range(8)), phase="Running", terminated=False, wants=wants)


def sibling(name: str, *, size: int = 2, affinity: str = "rack", count: int = 8, on: str | None = None) -> Pod:
    """Build a pod of the group `llama`, which runs on a whole node or waits for one."""
    wants = {keys.GROUP: "llama", keys.GROUP_SIZE: str(size), keys.GROUP_AFFINITY: affinity}
    if on is None:
        return pod(name, count, wants=wants)
    return pod(name, count, on=on, placed=gpus(on, *range(count)), phase="Running", terminated=False, wants=wants)


def passing(state: ClusterState, asked: Pod, now: float = 0.0) -> list[str]:
    """Return what filter passes on of all nodes."""
    return list(filter_nodes(state, args(asked, *sorted(state.views)), at(now)).node_names)


def refusals(state: ClusterState, asked: Pod) -> set[str]:
    """Return why filter passes nothing on."""
    answer = filter_nodes(state, args(asked, *sorted(state.views)), at())
    assert not answer.node_names
    return set((answer.failed_and_unresolvable_nodes or {}).values())


def test_a_group_is_offered_the_rack_that_it_fits_tightest() -> None:
    """Two nodes of three break nothing larger; a pod without a group may go anywhere."""
    state = cluster(*hall(a=4, b=2, c=3))
    assert passing(state, sibling("p1")) == ["b1", "b2"]
    assert len(passing(state, pod("p", 8))) == 9


def test_a_node_where_gpus_are_held_for_another_pod_counts_for_as_many_as_still_fit() -> None:
    """Beside the two that are held there is room for the whole group, and no other rack is as tight."""
    state = cluster(in_rack("a1"), *hall(b=2))
    filter_nodes(state, args(pod("other", 2), "a1"), at())
    assert passing(state, sibling("p1", size=3, count=2)) == ["a1"]


def test_the_next_pod_goes_where_the_group_has_begun() -> None:
    """A bound sibling decides, though another rack would fit what is left tighter."""
    nodes = [in_rack("a1", by="p1"), *hall(b=1), in_rack("a2"), in_rack("a3")]
    assert passing(cluster(*nodes, sibling("p1", on="a1")), sibling("p2")) == ["a2", "a3"]


def test_the_next_pod_follows_one_that_is_not_bound_yet() -> None:
    """kube-scheduler asks for it before the first one's bind arrives: the hold says where that one will be."""
    state = cluster(*hall(a=3, b=3), sibling("p1", size=3), sibling("p2", size=3))
    first = passing(state, sibling("p1", size=3))
    prioritize_nodes(state, args(sibling("p1", size=3), *first), at())
    assert first == ["a1", "a2", "a3"]
    assert passing(state, sibling("p2", size=3)) == ["a2", "a3"]


def test_another_extender_follows_the_claim_of_a_bind_under_way() -> None:
    """It has no hold, and reads the ledger."""
    nodes = [in_rack("b1", by="p1"), *hall(a=2), in_rack("b2"), in_rack("b3")]
    assert passing(cluster(*nodes, sibling("p1")), sibling("p2")) == ["b2", "b3"]


def test_a_group_that_begins_keeps_out_of_the_way_of_one_that_has_begun() -> None:
    """Rack a has the tighter fit, but the rest of it is needed by others."""
    state = cluster(in_rack("a1", by="q1"), *hall(b=3), in_rack("a2"), in_rack("a3"), stranger(size=3))
    assert passing(state, sibling("p1")) == ["b1", "b2", "b3"]


def test_a_size_alone_keeps_no_room_for_long() -> None:
    """A minute after the newest pod of a group only those that exist count: anybody can write a large number."""
    state = cluster(in_rack("a1", by="q1"), *hall(b=3), in_rack("a2"), in_rack("a3"), stranger(size=1_000_000))
    asked = sibling("p1", affinity="required-rack")
    assert passing(state, asked, now=59.0) == ["b1", "b2", "b3"]
    assert passing(state, asked, now=60.0) == ["a2", "a3"]


def test_pods_of_another_namespace_are_another_group() -> None:
    """Names of groups are anybody's to choose."""
    stranger = sibling("p1", on="a1")
    stranger = Pod(
        ObjectMeta(name="p1", namespace="elsewhere", uid="p1", annotations=stranger.metadata.annotations),
        stranger.spec,
        stranger.status,
    )
    nodes = [in_rack("a1", by="p1"), *hall(b=2), *(in_rack(f"a{i}") for i in range(2, 6))]
    assert passing(cluster(*nodes, stranger), sibling("p2")) == ["b1", "b2"]


def test_a_required_rack_that_cannot_hold_the_group_is_refused_with_the_count() -> None:
    """No pod of it starts to hold GPUs in vain."""
    state = cluster(*hall(a=2, b=1))
    message = "no rack has room for the group's 3 pods to come, at most for 2 (wait or let it relax)"
    assert refusals(state, sibling("p1", size=3, affinity="required-rack")) == {message}
    assert passing(state, sibling("p1", size=3, affinity="rack")) == ["a1", "a2"]


def test_a_replaced_pod_waits_for_the_rack_of_its_group() -> None:
    """Where the others are, and nowhere else."""
    nodes = [in_rack("a1", by="p1"), *hall(b=2)]
    state = cluster(*nodes, sibling("p1", affinity="required-rack", on="a1"))
    messages = refusals(state, sibling("p2", affinity="required-rack"))
    assert "not in the rack where the pod's group is (wait until GPUs of that rack are free)" in messages


def test_a_pod_that_comes_back_is_offered_the_rest_and_then_another_rack() -> None:
    """Somebody else refuses the nodes of rack b: the group is not stuck with them."""
    state = cluster(*hall(a=3, b=2))
    offers = [passing(state, sibling("p1")) for _ in range(3)]
    assert offers == [["b1", "b2"], ["a1", "a2", "a3"], ["b1", "b2"]]


def test_a_whole_nvlink_ring_comes_before_a_tighter_rack() -> None:
    """Pairs of rack a are joined by NVLink, those that are left in rack b are not."""
    taken = {name: gpus(name, *range(0, 8, 2), machine_name=PAIRS) for name in ("b1", "b2")}
    scattered = [in_rack(name, PAIRS, by=name, taken=taken[name]) for name in taken]
    whole = [in_rack(f"a{number}", PAIRS) for number in range(4)]
    state = cluster(*scattered, *whole, *(running(name, name, *taken[name]) for name in taken))
    assert set(passing(state, sibling("p1", count=2))) == {"a0", "a1", "a2", "a3"}


def test_prioritize_gives_nothing_to_other_racks() -> None:
    """Should it be asked about all nodes, it says the same as filter."""
    state = cluster(*hall(a=3, b=2))
    found = {entry.host: entry.score for entry in prioritize_nodes(state, args(sibling("p1"), *state.views), at())}
    assert {name for name, score in found.items() if score} == {"b1", "b2"}


def victims(state: ClusterState, asked: Pod, *names: str) -> list[str]:
    """Return the nodes on which preempt would evict their pod."""
    offered = {name: MetaVictims([MetaPod(f"on-{name}")], 0) for name in names}
    asking = ExtenderPreemptionArgs(asked, None, offered)
    return list(finish(preempt(state, asking, at, budget_seconds=1.0)).victims)


@pytest.mark.parametrize(("affinity", "expected"), [("rack", ["a2", "b1"]), ("required-rack", ["a2"])])
def test_nobody_is_evicted_where_the_group_cannot_use_it(affinity: str, expected: list[str]) -> None:
    """A required rack counts for preemption too."""
    nodes = [in_rack(name, by="p1" if name == "a1" else f"on-{name}") for name in ("a1", "a2", "b1")]
    low = [running(f"on-{name}", name, *gpus(name, *range(8))) for name in ("a2", "b1")]
    state = cluster(*nodes, *low, sibling("p1", affinity=affinity, on="a1"))
    wants = {keys.GROUP: "llama", keys.GROUP_SIZE: "2", keys.GROUP_AFFINITY: affinity}
    assert victims(state, pod("p2", 8, wants=wants, priority=10), "a2", "b1") == expected


def test_people_are_told_how_the_group_stands() -> None:
    """Where it is, how many are to come, and why not elsewhere."""
    nodes = [in_rack("a1", by="p1"), *hall(b=2), in_rack("a2")]
    state = cluster(*nodes, sibling("p1", on="a1"), sibling("p2"))
    told = inspection.explain(state, "ml", "p2", at())
    assert told is not None and told.group is not None
    assert told.group.line == "group llama (rack): 1 to come, others on a1 in a"
    assert [fit.node for fit in told.fits] == ["a2"]
    assert "not in the domain that the pod's group fills now" in {refusal.message for refusal in told.refusals}


def of_job(made: Pod, job: str, **labels: str) -> Pod:
    """Let a Job with indexes control a pod, with its words and none of ours but the size."""
    words = {f"batch.kubernetes.io/{key.replace('_', '-')}": text for key, text in labels.items()}
    owners = [OwnerReference(job, controller=True, kind="Job")]
    return replace(made, metadata=replace(made.metadata, labels=words or None, owner_references=owners))


def test_a_group_is_followed_in_the_words_of_its_controller() -> None:
    """The pod that kube-scheduler sends has them, and what is kept of its siblings; people are told whose words these are."""

    def worker(name: str, job: str, on: str | None = None) -> Pod:
        placed = gpus(on, *range(8)) if on else None
        phase, terminated = ("Running", False) if on else (None, None)
        wants = {keys.GROUP_SIZE: "2"}
        made = pod(name, 8, on=on, placed=placed, phase=phase, terminated=terminated, wants=wants)
        return of_job(made, job, job_name="train", controller_uid=job, job_completion_index="0")

    nodes = [in_rack("a1", by="p1"), *hall(b=2), *(in_rack(f"a{i}") for i in range(2, 6))]
    state = cluster(*nodes, worker("p1", "j1", on="a1"), worker("p2", "j1"), worker("q1", "j2"))
    assert passing(state, worker("p2", "j1")) == ["a2", "a3", "a4", "a5"]
    assert passing(state, worker("q1", "j2")) == ["b1", "b2"]
    for name, others in (("p2", "others on a1"), ("p1", "none placed yet")):
        for told in (inspection.explain(state, "ml", name, at()), why(state, "ml", name, at(), limit=1)):
            assert told is not None and told.group is not None
            assert told.group.line == f"group train, as job says (nvlink-domain): 1 to come, {others}"


def test_the_second_run_of_a_template_is_not_drawn_to_the_first() -> None:
    """Both name one group, and a Job controls each."""
    nodes = [in_rack("a1", by="p1"), *hall(b=2), *(in_rack(f"a{i}") for i in range(2, 5))]
    first = of_job(sibling("p1", on="a1"), "j1")
    state = cluster(*nodes, first)
    assert passing(state, of_job(sibling("p2"), "j1")) == ["a2", "a3", "a4"]
    assert passing(state, of_job(sibling("p2"), "j2")) == ["b1", "b2"]


def test_a_member_that_cannot_be_read_or_is_gone_does_not_count() -> None:
    """Else a forgotten pod would bind its namesakes for ever."""
    nodes = [
        in_rack("a1", by="p1"),
        *hall(b=2),
        *(in_rack(name) for name in ("a2", "a3", "a4")),
    ]
    state = cluster(*nodes, sibling("p1", on="a1"))
    state.pods.deleted(sibling("p1", on="a1"))
    assert passing(state, sibling("p2")) == ["b1", "b2"]


def test_the_agents_word_on_nvlink_goes_before_labels() -> None:
    """NVML knows the fabric; labels of racks are tried in turn."""
    wired = machine("dgx-a100", host="n1")
    topology = type(wired)(wired.gpus, wired.links, wired.nics, NvlinkDomain("c0ffee", 7))
    labels = {"nvidia.com/gpu.clique": "old.1", "fabric.topograph.run/tier-0": "leaf-3", "unrelated": "x"}
    state = cluster(node("n1", topology=encode_topology(topology), labels=labels), node("n2", labels=labels))
    assert state.nodes.locations == {"n1": Location("c0ffee.7", "leaf-3"), "n2": Location("old.1", "leaf-3")}


def test_every_level_has_labels() -> None:
    """And none is read for two levels."""
    read = [label for labels in DOMAIN_LABELS.values() for label in labels]
    assert set(DOMAIN_LABELS) == set(Level) and len(read) == len(set(read))


def test_a_pod_has_peers_as_long_as_another_one_of_its_group_is_alive() -> None:
    """Behind a gate or not; those that have ended, and pods of other groups, are none."""
    gated = sibling("gated")
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=[{"name": keys.PLAN_GATE}]))
    ended = replace(sibling("ended"), status=replace(gated.status, phase="Succeeded"))
    for others, has_peers in (([], False), ([ended], False), ([gated], True), ([sibling("open")], True)):
        groups = cluster(*hall(a=1), stranger(2), sibling("p"), *others, pod("alone")).indexes.groups
        assert [groups.has_peers(uid) for uid in ("p", "alone", "nobody")] == [has_peers, False, False]
        assert bool(groups.peers("p")) == has_peers
    groups = cluster(*hall(a=1), ended, sibling("p")).indexes.groups
    assert groups.has_peers("ended")
