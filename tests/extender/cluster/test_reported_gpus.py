"""What nobody but a node's agent knows of its GPUs, and no claim or live pod says: shared, held whole, or of which class."""

from __future__ import annotations

import pytest

from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import claim, cluster, free, gpus, pod
from tests.extender.shares import share, sharer, sharing_node
from topology.placement.verdict import Placement

A, *REST = gpus("n1", *range(8))
WHOLE = tuple(claim(gpu, "others") for gpu in REST)
"""Nothing of these GPUs is left."""


def stopped(name: str, gib: int | None = None) -> Pod:
    """Build a pod whose containers have stopped; `None`: it had the whole GPU."""
    if gib is None:
        return pod(name, 1, on="n1", placed=(A,), phase="Succeeded", terminated=True)
    return sharer(name, gib, on="n1", gpu=A, phase="Succeeded", terminated=True)


def takes(asked: Pod, *objects: Node | Pod) -> bool:
    """Whether the pod gets the one GPU that is not claimed by others."""
    verdict = cluster(*objects).views["n1"].decide_for(asked.metadata.uid, read_request(asked).request)
    return isinstance(verdict, Placement)


@pytest.mark.parametrize("sharing_class", ["", "dev"])
def test_no_share_goes_beside_a_pod_of_which_nobody_knows_the_class(sharing_class: str) -> None:
    """The agent saw one by a name that no pod of ours has. There is room, but perhaps not for this class."""
    asked = sharer("new", 1, sharing_class=sharing_class)
    assert not takes(asked, sharing_node(*WHOLE, seen={A: {"nobody-knows": 10}}))
    assert takes(asked, sharing_node(*WHOLE))


def test_a_gpu_that_the_agent_reports_as_whole_does_not_begin_to_be_shared() -> None:
    """Its pod has stopped, so another can have it whole; the kubelet may not know it in GiB yet."""
    reported = sharing_node(*WHOLE, whole={A: "gone"}), stopped("gone")
    assert not takes(sharer("new", 1), *reported)
    assert takes(pod("new", 1), *reported)


def test_a_gpu_that_the_agent_reports_as_shared_is_not_planned_whole() -> None:
    """Its last share has ended, so any class may have one; the kubelet may not know it as a whole yet."""
    reported = sharing_node(*WHOLE, seen={A: {"gone": 10}}), stopped("gone", 10)
    assert not takes(pod("new", 1), *reported)
    assert free(cluster(*reported)) == ()
    assert takes(sharer("new", 39, sharing_class="dev"), *reported)


def test_a_claim_does_not_make_a_gpu_whole_that_the_agent_reports_as_shared() -> None:
    """A pod that claimed it before its share ended has to look elsewhere as well."""
    reported = sharing_node(*WHOLE, claim(A, "new"), seen={A: {"gone": 10}}), stopped("gone", 10)
    assert not takes(pod("new", 1), *reported)


def test_a_share_keeps_the_gpu_that_the_agent_reports_as_shared() -> None:
    """Its own claim is the only one there."""
    assert takes(sharer("p", 39), sharing_node(*WHOLE, share(A, "p", 10), seen={A: {"gone": 10}}), stopped("gone", 10))
