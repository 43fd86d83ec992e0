"""What is added up over all nodes follows them one by one, and is what going through all of them would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.cluster.objects.kinds import Node
from extender.cluster.state import ClusterState
from tests.extender.builders import DGX, claim, cluster, gpus, node
from tests.extender.shares import SHARE_GIB, share, sharing_node

NAMES, MACHINES = ("n1", "n2", "n3"), (DGX, "dgx-1v", "rtx-3090-2")


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """Draw a node, shared or not, with claims or without, sick or well, in order or broken."""
    if draw(st.booleans()):
        return sharing_node(share(gpus(name, 0)[0], "p", draw(st.integers(1, SHARE_GIB))), name=name)
    machine_name = draw(st.sampled_from(MACHINES))
    one, other = gpus(name, 0, 1, machine_name=machine_name)
    claims = draw(st.sampled_from([(), (claim(one, "p"),), None]))
    sick = draw(st.sampled_from([(), (one,), (one, other)]))
    return node(name, machine_name, claims=claims, sick=sick, ready=draw(st.booleans()))


def gone_through(state: ClusterState) -> dict[str, int]:
    """Return the sums as the views say them."""
    views = [view for view in state.views.values() if view.uuids]
    shared = [gpu for view in views for gpu in view.shape.shares.shared]
    return {
        "nodes": len(views),
        "nodes_closed": sum(view.shape.closed is not None for view in views),
        "gpus": sum(len(view.uuids) for view in views),
        "gpus_free": sum(view.shape.free_gpus.bit_count() for view in views),
        "gpus_shared": len(shared),
        "share_gib_taken": sum(use.memory_gib for view in views for use in view.uses.values()),
        "share_gib_left": sum(gpu.left_gib for gpu in shared),
        "ledgers_broken": sum(view.is_broken for view in state.views.values()),
    }


@pytest.mark.slow
@given(st.lists(st.sampled_from(NAMES).flatmap(lambda name: st.none() | nodes(name)), max_size=12))
def test_sums_follow_each_change(changes: list[Node | None]) -> None:
    """Of nodes that come, change and go; `None` takes one away."""
    state = cluster()
    for version, changed in enumerate(changes, 1):
        if changed is not None:
            metadata = replace(changed.metadata, resource_version=str(version))
            state.nodes.changed(replace(changed, metadata=metadata))
        elif state.views:
            state.nodes.deleted(state.views[min(state.views)].node)
        assert gone_through(state).items() <= state.sums.figures.items()
        classes = {view.shape.topology_class for view in state.views.values()} - {None}
        assert state.sums.topology_classes == len(classes)


def test_nothing_is_left_of_nodes_that_are_gone() -> None:
    """A class that no node is of any more keeps nothing alive."""
    state = cluster(node("n1"), sharing_node(share(gpus("n2", 0)[0], "p", 10), name="n2"))
    assert (state.sums.figures["gpus"], state.sums.topology_classes) == (16, 1)
    assert (state.sums.figures["share_gib_taken"], state.sums.figures["share_gib_left"]) == (10, SHARE_GIB - 10)
    state.nodes.replaced([])
    assert (set(state.sums.figures.values()), state.sums.topology_classes) == ({0}, 0)
    assert not state.sums._nodes_of
