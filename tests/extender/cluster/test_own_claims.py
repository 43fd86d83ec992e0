"""What a pod finds that has claims on a node already: its own count as left, those of all others do not."""

from __future__ import annotations

import pytest

from extender.cluster.node_view import NodeView
from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.objects.kinds import Node, Pod
from tests.extender.builders import claim, cluster, gpus, pod
from tests.extender.shares import SHARE_GIB, share, sharer, sharing, sharing_node
from topology.placement.decide import Decision
from topology.placement.verdict import Placement

A, B, *REST = gpus("n1", *range(8))
WHOLE = tuple(claim(gpu, "others") for gpu in REST)
"""Nothing of these GPUs is left."""


def view(*objects: Node | Pod) -> NodeView:
    """Return the node as it is seen with these pods."""
    return cluster(*objects, pod("others", len(REST))).views["n1"]


def decision(seen: NodeView, asked: Pod) -> Decision:
    """Decide for a pod, by whatever claims it has there."""
    return seen.decide_for(asked.metadata.uid, read_request(asked).request)


def places(seen: NodeView, asked: Pod) -> tuple[int, ...]:
    """Return the positions of the GPUs that the pod gets; empty where it does not fit."""
    verdict = decision(seen, asked)
    return verdict.gpus if isinstance(verdict, Placement) else ()


def test_a_share_keeps_its_gpu_and_what_it_has_of_it() -> None:
    """All that is left beside the others, its own included; one GiB more goes to the GPU that is free."""
    seen = view(sharing_node(share(B, "p", 10), share(B, "q", 5), *WHOLE), sharing("q", B, 5))
    assert places(seen, sharer("p", SHARE_GIB - 5)) == (1,)
    assert places(seen, sharer("p", SHARE_GIB - 4)) == (0,)
    assert places(seen, sharer("new", SHARE_GIB - 15)) == (1,)


def test_a_pod_with_a_share_gets_none_of_a_gpu_that_another_pod_claimed_whole() -> None:
    """It has outgrown its own, and the other pod is not bound yet: nothing but its claim says whose the GPU is."""
    seen = view(
        sharing_node(share(A, "p", 10), share(A, "q", 5), claim(B, "whole"), *WHOLE), sharing("q", A, 5), pod("whole")
    )
    assert places(seen, sharer("p", SHARE_GIB - 5)) == (0,)
    assert places(seen, sharer("p", SHARE_GIB - 4)) == ()


def test_a_dead_claim_on_a_whole_gpu_leaves_it_to_a_pod_with_a_share() -> None:
    """The pod that claimed it is bound elsewhere."""
    claims = share(A, "p", 10), share(A, "q", 5), claim(B, "elsewhere"), *WHOLE
    seen = view(sharing_node(*claims), sharing("q", A, 5), pod("elsewhere", on="n2"))
    assert places(seen, sharer("p", SHARE_GIB)) == (1,)


@pytest.mark.parametrize("own_gib", [1, 10])
def test_hidden_gib_count_against_a_pod_with_a_share_too(own_gib: int) -> None:
    """Nobody knows on which GPU they are: perhaps on its own."""
    stray = sharer("stray", 10, on="n1", phase="Running", terminated=False)
    claims = share(A, "p", own_gib), share(A, "q", 5), claim(B, "others"), *WHOLE
    seen = view(sharing_node(*claims), sharing("q", A, 5), stray)
    assert places(seen, sharer("p", SHARE_GIB - 15)) == (0,)
    assert places(seen, sharer("p", SHARE_GIB - 14)) == ()
