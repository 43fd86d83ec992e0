"""How many pods with shares a node takes: as many as one after the other, and found without asking for each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.candidates import shape as shapes
from extender.cluster.candidates.shape import Shape
from tests.extender.builders import cluster, gpus
from tests.extender.shares import SHARE_GIB, share, sharing, sharing_node
from topology.placement.decide import Decision, Situation, decide
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.request.shares import SameGpu


def node_with(*taken: int, max_gpus: int = 8) -> Shape:
    """Return a node of which so many GiB of each GPU are taken."""
    of = [(gpu, f"p{i}", gib) for i, (gpu, gib) in enumerate(zip(gpus("n1", *range(8)), taken, strict=False)) if gib]
    node = sharing_node(*(share(gpu, name, gib) for gpu, name, gib in of), max_gpus=max_gpus)
    return cluster(node, *(sharing(name, gpu, gib) for gpu, name, gib in of)).views["n1"].shape


def one_by_one(shape: Shape, request: GpuRequest) -> int:
    """Count by placing one pod after the other."""
    pods = 0
    while isinstance(found := shape.decide(request), Placement):
        shares = shape.shares
        for position, gib in zip(found.shares, request.memory_gib, strict=True):
            shares = shares.taken(position, gib, request.sharing_class)
        free = shape.free & ~sum(1 << position for position in found.gpus)
        shape, pods = replace(shape, free=free, shares=shares), pods + 1
    return pods


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(0, SHARE_GIB), max_size=5),
    st.integers(1, 8),
    st.lists(st.integers(5, SHARE_GIB), min_size=1, max_size=2).map(tuple),
    st.sampled_from((SameGpu.PREFERRED, SameGpu.REQUIRED)),
)
def test_as_many_fit_as_one_after_the_other(
    taken: list[int], max_gpus: int, gib: tuple[int, ...], same: SameGpu
) -> None:
    """Whatever is taken already, and however many GPUs may be shared."""
    shape, request = node_with(*taken, max_gpus=max_gpus), GpuRequest(0, memory_gib=gib, same_gpu=same)
    assert shape.how_many_fit(request) == (one_by_one(shape, request), True)


@pytest.mark.parametrize("same", [SameGpu.PREFERRED, SameGpu.NEVER])
def test_small_shares_take_a_decision_for_each_gpu_and_not_for_each_pod(
    monkeypatch: pytest.MonkeyPatch, same: SameGpu
) -> None:
    """Filter counts them for pods of groups, on every node that is shared in a way of its own."""
    decisions: list[GpuRequest] = []

    def counted(situation: Situation, request: GpuRequest) -> Decision:
        decisions.append(request)
        return decide(situation, request)

    monkeypatch.setattr(shapes, "decide", counted)
    assert node_with(5, 9).how_many_fit(GpuRequest(0, memory_gib=(1, 1), same_gpu=same))[0] >= 140
    assert len(decisions) <= 12
