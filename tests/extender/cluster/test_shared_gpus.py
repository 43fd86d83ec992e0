"""What else looks at GPUs sees all pods that share one: sickness, groups, and what would be without some pods."""

from __future__ import annotations

from dataclasses import replace

from extender.cluster.objects.gpu_pods import read_group
from extender.cluster.objects.group_words import ALL_WORDS
from extender.cluster.sickness import stricken_pods
from extender.kubectl.eviction import without
from tests.extender.builders import claim, cluster, gpus, running
from tests.extender.shares import SHARE_GIB, share, sharer, sharing, sharing_node
from topology.annotations import keys
from topology.annotations.status_codec import decode_status, encode_status
from topology.value.coming_back import MANY_PODS

A, B, *_ = gpus("n1", *range(8))
PAIR = share(A, "p", 10), share(A, "q", 10)
BOTH = sharing("p", A), sharing("q", A)
SEEN = {A: {"p": 10, "q": 10}}


def test_all_who_share_a_sick_gpu_are_told_for_certain() -> None:
    """Not only the first of them."""
    node = sharing_node(*PAIR, seen=SEEN)
    annotations = node.metadata.annotations
    assert annotations is not None
    status = decode_status(annotations[keys.STATUS])
    sick = tuple(replace(gpu, healthy=False, sick_since=1) if gpu.uuid == A else gpu for gpu in status.gpus)
    annotations[keys.STATUS] = encode_status(replace(status, gpus=sick))
    found = {each.pod.uid: each.is_certain for each in stricken_pods(cluster(node, *BOTH))}
    assert found == {"p": True, "q": True}


def test_a_pod_with_a_ceiling_is_in_its_group() -> None:
    """What a share may compute says nothing of groups."""
    wants = {keys.GROUP: "llama", keys.COMPUTE_PERCENT: "20", keys.SAME_GPU: "required"}
    group = read_group(sharer("p", wants=wants), ALL_WORDS)
    assert group is not None and group.name == "llama"


def test_a_gpu_is_as_it_would_be_without_one_of_those_who_share_it() -> None:
    """The other stays, in ledger and report; without both it is whole again."""
    node = sharing_node(*PAIR, seen=SEEN)
    found = cluster(*(each for some in without([node], BOTH, {("ml", "p")}) for each in some)).views["n1"]
    assert {gpu: use.memory_gib for gpu, use in found.uses.items()} == {A: 10}
    assert [who.name for who in found.sharers[A]] == ["q"]
    empty = cluster(*without([node], BOTH, {("ml", "p"), ("ml", "q")})[0]).views["n1"]
    assert (empty.uses, empty.shape.free) == ({}, 0b1111_1111)


def test_who_shares_a_gpu_is_counted_by_pods() -> None:
    """By claim or by report, a pod with two containers there once, and many as `MANY_PODS`; then it comes back when all end."""
    two = share(A, "p", 10, container="a"), share(A, "p", 5, container="b")
    many = [share(B, f"m{number}", 1) for number in range(MANY_PODS + 2)]
    node = sharing_node(*two, share(A, "q", 10), *many, seen={A: {"q": 10}})
    shape = cluster(node, sharer("p", {"a": 10, "b": 5}, on="n1", gpu=A), sharing("q", A)).views["n1"].shape
    assert {gpu.position: gpu.pods for gpu in shape.shares.shared} == {0: 2, 1: MANY_PODS}


def test_a_gpu_that_the_kubelet_knows_in_parts_is_not_planned_whole() -> None:
    """The pod that had a share has provably ended, and the agent has not told of it yet: other shares may come, no pod whole."""
    ended = sharer("p", on="n1", gpu=A, phase="Succeeded", terminated=True)
    view = cluster(sharing_node(seen={A: {"p": 10}}), ended).views["n1"]
    assert not view.holders and not view.uses
    assert view.shape.free == view.usable == 0b1111_1110
    assert [(gpu.position, gpu.left_gib) for gpu in view.shape.shares.shared] == [(0, SHARE_GIB)]
    looked = cluster(sharing_node(reports=2), ended).views["n1"]
    assert looked.shape.free == 0b1111_1111


def test_a_gpu_is_not_shared_while_a_pod_has_a_mig_slice_of_it_that_is_gone() -> None:
    """It was made whole under that pod; nor is more of it given where others have shares already."""
    gone = replace(claim("MIG-old", "owner"), parent=A)
    owner = running("owner", "n1", "MIG-old")
    shape = cluster(sharing_node(gone), owner).views["n1"].shape
    assert shape.shares.shareable == 0b1111_1110
    for owners in (owner,), ():  # the claim alone is enough
        beside = cluster(sharing_node(gone, share(A, "q", 10)), *owners, sharing("q", A))
        assert [(gpu.position, gpu.left_gib) for gpu in beside.views["n1"].shape.shares.shared] == [(0, 0)]
