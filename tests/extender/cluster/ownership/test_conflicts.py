"""Which live pods cannot have their GPUs together: on one GPU, or on a GPU and a MIG slice of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from extender.cluster.objects.gpu_pods import read_gpu_pod
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.parts import Part, whole
from extender.cluster.ownership.conflicts import conflicts_of, hidden_gib, hidden_gpus, hidden_slices
from extender.cluster.ownership.holdings import Holding
from tests.extender.builders import pod, running
from tests.extender.mig import slice_pod
from tests.extender.shares import sharer
from topology.node.silicon import NO_SLICES, Silicon

GONE = Silicon(gone={"MIG-a": "a", "MIG-b": "b"})
"""Pods may have slices of earlier cuts of both GPUs."""


def holds(item: Pod, gpus: str | Sequence[str], claimed: str | Sequence[str] = "", *, seen: bool = False) -> Holding:
    """Return what a pod holds: whole GPUs, one letter each, or slices."""
    found = read_gpu_pod(item)
    assert found
    return Holding(found, whole(dict.fromkeys(gpus, "main")), whole(dict.fromkeys(claimed, "main")), seen=seen)


def has_share(name: str, gib: int, *, phase: str = "Running") -> Holding:
    """Return what a pod holds that was seen with a share of GPU a."""
    found = read_gpu_pod(sharer(name, gib, on="n1", phase=phase))
    assert found
    parts = {"a": (Part("main", gib),)}
    return Holding(found, parts, parts, seen=True)


def pods_on(
    *holdings: Holding, silicon: Silicon = NO_SLICES, memory_gib: Mapping[str, int] = {"a": 40}
) -> dict[str, list[str]]:
    """Return each GPU or slice in conflict, and the UIDs of the pods there."""
    return {gpu: [pod.uid for pod in pods] for gpu, pods in conflicts_of(holdings, memory_gib, silicon).items()}


def test_gpus_of_a_pod_that_was_not_seen_are_all_that_anything_names() -> None:
    """Its claims, its record and what it is taken to hold: nobody knows which of them it got."""
    others = [holds(running(name, "n1", gpu), gpu, seen=True) for name, gpu in (("x", "a"), ("y", "b"))]
    assert pods_on(holds(running("p", "n1", "a"), "a", "b"), *others) == {"a": ["p", "x"], "b": ["p", "y"]}
    assert pods_on(holds(running("p", "n1", "a"), "b", "b"), *others) == {"a": ["p", "x"], "b": ["p", "y"]}


def test_gpus_of_a_pod_that_was_seen_are_those_that_it_was_seen_with() -> None:
    """Whatever its record and its claims say."""
    other = holds(running("x", "n1", "a"), "a", seen=True)
    assert pods_on(holds(running("p", "n1", "a"), "b", "a", seen=True), other) == {}


def test_a_pod_that_has_not_started_is_in_no_conflict_with_one_that_was_seen() -> None:
    """The kubelet will give it other GPUs. Two that have not started are in conflict."""
    waiting, second = (holds(pod(name, on="n1", placed=("a",), phase="Pending"), "a") for name in "pq")
    assert pods_on(waiting, holds(running("x", "n1", "a"), "a", seen=True)) == {}
    assert pods_on(waiting, second) == {"a": ["p", "q"]}


def test_pods_that_were_seen_are_in_conflict_before_they_run() -> None:
    """Their containers hold the GPU already: init containers do so while the pod is pending."""
    assert pods_on(has_share("p", 20, phase="Pending"), has_share("q", 20, phase="Pending")) == {}
    assert pods_on(has_share("p", 20, phase="Pending"), has_share("q", 21, phase="Pending")) == {"a": ["p", "q"]}


def test_a_gpu_and_a_slice_of_it_are_in_conflict() -> None:
    """Each with the pods of both, by UID, and with those of no other GPU."""
    owners = {"a": "z", "MIG-a": "p", "b": "y", "MIG-b": "q"}
    holdings = [holds(running(name, "n1", device), [device], seen=True) for device, name in owners.items()]
    for order in holdings, holdings[::-1]:
        found = pods_on(*order, silicon=GONE)
        assert found == {"a": ["p", "z"], "MIG-a": ["p", "z"], "b": ["q", "y"], "MIG-b": ["q", "y"]}
        assert [*found] == sorted(found)


def test_a_pod_is_in_no_conflict_with_itself() -> None:
    """It may have a GPU and a slice of its earlier cut."""
    assert pods_on(holds(running("p", "n1", "a", "MIG-a"), ["a", "MIG-a"], seen=True), silicon=GONE) == {}


def hides(item: Pod, hidden: int | None) -> Holding:
    """Return what a pod holds of which so many GPUs, slices or GiB cannot be named."""
    return replace(holds(item, ""), hidden=hidden)


def test_what_is_hidden_is_counted_by_its_kind() -> None:
    """Slices by profile, shares in GiB and as GPUs. Of what nobody can read, and what is named, nothing is counted."""
    holdings = [
        hides(pod("whole", 3, on="n1"), 2),
        hides(pod("unreadable", "many", on="n1"), None),
        hides(pod("named", on="n1"), 0),
        hides(slice_pod("large", "3g.40gb", 2, on="n1"), 2),
        hides(slice_pod("small", "1g.10gb", on="n1"), 1),
        hides(slice_pod("second", "1g.10gb", on="n1"), 1),
        hides(slice_pod("named-slice", "7g.80gb", on="n1"), 0),
        hides(sharer("share", 10, on="n1"), 10),
        hides(sharer("odd-share", 10, on="n1"), None),
        hides(sharer("named-share", 20, on="n1"), 0),
    ]
    assert hidden_slices(holdings) == (("1g.10gb", 2), ("3g.40gb", 2))
    assert hidden_gib(holdings) == 10
    assert hidden_gpus(holdings) == 3


def test_hidden_shares_are_on_a_gpu_for_each_container_that_was_not_named() -> None:
    """On one at least, and on one for each container where all that is named is another node's."""
    two = sharer("p", {"main": 10, "side": 5}, on="n1")
    main = {"a": (Part("main", 10),)}
    assert hidden_gpus([replace(hides(two, 5), gpus=main)]) == 1
    assert hidden_gpus([hides(two, 15)]) == 2
    assert hidden_gpus([replace(hides(two, 15), gpus=main, claimed=main, is_elsewhere=True)]) == 2
    part_of_main = {"a": (Part("main", 4),)}
    assert hidden_gpus([replace(hides(sharer("p", 10, on="n1"), 6), gpus=part_of_main)]) == 1
