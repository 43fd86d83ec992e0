"""Who has a GPU that is shared: by claim, by record and as the agent saw it, where these do not say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from extender.cluster.node_view import NodeView
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import claim, cluster, gpus, pod, running
from tests.extender.shares import saw, share, sharer, sharing, sharing_node
from topology.annotations import keys
from topology.annotations.records import Observed, Sharer, encode_observed

A, B, C, *REST = gpus("n1", *range(8))


def view(node: Node, *pods: Pod) -> NodeView:
    """Return the node as it is seen with these pods."""
    return cluster(node, *pods).views["n1"]


def taken(seen: NodeView) -> Mapping[str, tuple[int, str | None]]:
    """Return GPU → GiB and class."""
    return {gpu: (use.memory_gib, use.sharing_class) for gpu, use in seen.uses.items()}


@pytest.mark.parametrize(
    ("node", "pods", "expected"),
    [
        (sharing_node(share(A, "p", 12)), [sharing("p", A, 10)], {A: (12, "")}),
        (sharing_node(seen={B: {"p": 10}}), [sharing("p", A, 10)], {A: (10, ""), B: (10, "")}),
        (sharing_node(share(B, "p", 10), seen={B: {"p": 10}}), [sharing("p", A, 10)], {A: (10, ""), B: (10, "")}),
        (sharing_node(share(A, "q", 10), seen={A: {"stranger": 10}}), [], {A: (20, None)}),
        (sharing_node(seen={A: {"stranger": 1, "another": 2}}), [], {A: (3, None)}),
        (sharing_node(claim(A, "p")), [], {}),
        (sharing_node(seen={A: {"p": 1}}), [sharer("p", 1, on="n1", phase="Succeeded", terminated=True)], {}),
        (sharing_node(share(A, "p", 10), seen={A: {"p": 10}}), [], {A: (10, "")}),
        (sharing_node(claim(A, "p"), seen={A: {"p": 1}}), [], {A: (0, None)}),
        (sharing_node(seen={A: {"q": 1}}), [running("q", "n1", B)], {A: (0, None)}),
    ],
    ids=[
        "claimed is more than recorded",
        "recorded and seen elsewhere",
        "claimed and seen elsewhere than recorded",
        "a stranger beside a claim",
        "two strangers",
        "claimed as a whole",
        "seen with a pod that has stopped",
        "seen as claimed",
        "claimed as a whole and seen in parts",
        "seen with a part, asked for a whole",
    ],
)
def test_the_most_that_anything_says_is_taken(
    node: Node, pods: Sequence[Pod], expected: Mapping[str, tuple[int, str | None]]
) -> None:
    """On every GPU of which something says so."""
    assert taken(view(node, *pods)) == expected


def test_a_container_that_only_the_agent_knows_counts_for_its_pod() -> None:
    """With the class of the pod, and until the pod is gone."""
    observed = Observed(saw({A: {"p": 10}}).gpus, shared={B: (Sharer("ml", "p", "side", 5),)})
    node = sharing_node()
    assert node.metadata.annotations is not None
    node.metadata.annotations[keys.OBSERVED] = encode_observed(observed)
    seen = view(node, sharing("p", A, 10, "dev"))
    assert taken(seen)[B] == (5, "dev")
    assert seen.uses[B].without({"p"}) is None


def test_whoever_has_it_whole_is_a_taker_beside_a_claim() -> None:
    """By UID if it is a pod of ours: without it nothing but the claim is left."""
    mine = view(sharing_node(share(A, "p", 5), whole={A: "q"}), running("q", "n1", A)).uses[A]
    left = mine.without({"q"})
    assert (mine.sharing_class, mine.pods) == (None, 2)
    assert left is not None and (left.memory_gib, left.sharing_class) == (5, "")
    strange = view(sharing_node(share(A, "p", 5), whole={A: "q"})).uses[A]
    assert [(taker.uid, taker.name, taker.memory_gib) for taker in strange.takers] == [("", "q", None), ("p", "p", 5)]


def test_a_pod_that_nobody_lists_is_counted_once_by_claim_and_report() -> None:
    """The agent saw what is claimed for it; of strangers each is one."""
    assert view(sharing_node(share(A, "p", 10), seen={A: {"p": 10}})).uses[A].pods == 1
    assert view(sharing_node(seen={A: {"stranger": 1, "another": 2}})).uses[A].pods == 2


def observed(node: Node, shared: Mapping[str, tuple[Sharer, ...]]) -> Node:
    """Let the node's agent say exactly who has parts of which GPUs."""
    assert node.metadata.annotations is not None
    node.metadata.annotations[keys.OBSERVED] = encode_observed(Observed({}, shared=shared))
    return node


def test_what_was_seen_beyond_a_claim_is_of_the_class_of_the_claim() -> None:
    """The pod is gone: nobody else says of which class its containers are."""
    use = view(sharing_node(share(A, "p", 5, "dev"), seen={A: {"p": 8}})).uses[A]
    assert (use.memory_gib, use.sharing_class, use.pods) == (8, "dev", 2)


def test_a_live_pod_that_was_seen_with_more_than_its_claim_is_one_taker() -> None:
    """It has what was seen, once."""
    use = view(sharing_node(share(A, "p", 5), seen={A: {"p": 8}}), sharing("p", A, 5)).uses[A]
    assert [(taker.uid, taker.memory_gib) for taker in use.takers] == [("p", 8)]


def test_what_a_namesake_is_known_to_have_is_not_counted_for_the_live_pod_again() -> None:
    """Its claim explains all that was seen under the name."""
    old = replace(share(A, "p", 6), uid="old")
    use = view(sharing_node(old, seen={A: {"p": 6}}), sharing("p", B, 2)).uses[A]
    assert [(taker.uid, taker.memory_gib) for taker in use.takers] == [("old", 6)]


def test_parts_of_one_container_are_added_up_and_those_of_two_are_told_apart() -> None:
    """A device plugin may list a container several times."""
    seen = (Sharer("ml", "x", "main", 2), Sharer("ml", "x", "main", 3), Sharer("ml", "x", "side", 4))
    use = view(observed(sharing_node(), {A: seen})).uses[A]
    assert [(taker.container, taker.memory_gib) for taker in use.takers] == [("main", 5), ("side", 4)]
    assert (use.memory_gib, use.pods) == (9, 1)


def test_pods_of_one_name_in_two_namespaces_are_two() -> None:
    """Neither has a UID that anybody knows."""
    seen = (Sharer("ml", "x", "main", 2), Sharer("web", "x", "main", 3))
    use = view(observed(sharing_node(), {A: seen})).uses[A]
    assert (use.memory_gib, use.pods) == (5, 2)


def test_shares_of_two_classes_leave_room_for_none() -> None:
    """Two claims cannot say so in one ledger, a claim and a record can."""
    use = view(sharing_node(share(A, "p", 5, "dev")), sharing("q", A, 5, "prod")).uses[A]
    assert (use.memory_gib, use.pods, use.sharing_class) == (10, 2, None)


def test_what_stays_when_one_of_several_goes_is_the_others() -> None:
    """By UID, not by name."""
    use = view(sharing_node(share(A, "p", 5), share(A, "q", 7))).uses[A]
    left = use.without({"p"})
    assert left is not None and [(taker.uid, taker.memory_gib) for taker in left.takers] == [("q", 7)]
    assert use.without({"p", "q"}) is None
    assert use.without(()) == use


def test_a_record_of_a_share_counts_where_the_agent_saw_nothing_of_it() -> None:
    """On the GPU of the record and on that of the claim, not on others that pods have whole."""
    uses = view(sharing_node(share(A, "p", 5), claim(C, "w")), sharing("p", B, 6)).uses
    assert {gpu: use.memory_gib for gpu, use in uses.items()} == {A: 5, B: 6}


def test_a_live_pod_with_a_claim_that_was_seen_with_the_whole_gpu_is_one_taker() -> None:
    """It has all of it, whatever was claimed."""
    use = view(sharing_node(share(A, "p", 5), whole={A: "p"}), sharing("p", A, 5)).uses[A]
    assert [(taker.uid, taker.memory_gib) for taker in use.takers] == [("p", None)]


def test_a_stranger_stands_in_the_order_by_its_name() -> None:
    """Where a UID would be."""
    use = view(sharing_node(share(A, "a", 5), whole={A: "q"})).uses[A]
    assert [taker.name for taker in use.takers] == ["a", "q"]


def test_a_pod_whose_request_cannot_be_read_has_what_was_seen_of_it() -> None:
    """Nobody knows that it asked for a whole GPU."""
    odd = pod("q", "many", on="n1", phase="Running", terminated=False)
    use = view(sharing_node(seen={A: {"p": 1, "q": 3}}), odd).uses[A]
    assert [(taker.name, taker.memory_gib) for taker in use.takers] == [("p", 1), ("q", 3)]


def test_what_was_seen_beyond_two_pods_of_one_name_is_of_the_class_of_the_first_claim() -> None:
    """Of all that is known under the name the ledger comes first."""
    old = replace(share(A, "p", 2, "dev"), uid="old")
    use = view(sharing_node(old, seen={A: {"p": 9}}), sharing("p", A, 3, "prod")).uses[A]
    assert {(taker.uid, taker.memory_gib, taker.sharing_class) for taker in use.takers} == {
        ("old", 2, "dev"),
        ("p", 7, "dev"),
    }
    assert use.sharing_class == "dev"


def test_shared_gpus_have_an_order() -> None:
    """Whichever of them something was said of first."""
    uses = view(sharing_node(*(share(gpu, f"p{gpu.lower()}", 1) for gpu in (C, A, *REST, B)))).uses
    assert [*uses] == sorted(uses)


def test_takers_have_an_order() -> None:
    """So that nodes with the same pods are alike, in whatever order these came."""
    names = [f"p{number}" for number in range(6)]
    pods = [sharer(name, 1, on="n1", gpu=A, phase="Running", terminated=False) for name in names]
    use = view(sharing_node(*(share(A, name, 1) for name in reversed(names))), *pods).uses[A]
    assert [taker.name for taker in use.takers] == names
