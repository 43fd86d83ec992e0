"""Where the product promises less than the model, which rebuilds every lost ledger, and from what is, not from what was heard.

Each gap is told in docs/limitations.md. A test that passes here is a gap that has been closed.
"""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.double.resources import NODES
from extender.binding.intents import BindPod
from extender.binding.repair import repair
from extender.cluster.objects import Node
from tests.extender.world import Replica, World, delay_request, drive
from topology import keys


def binding_under_way(world: World) -> None:
    """Let a rival claim the node's GPUs for p, and hold its Binding in the network; then the ledger is lost."""
    world.add_pod("p")
    drive(Replica(world).start_bind("p"), delay_request(world, BindPod))
    world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: None}}})


@pytest.mark.xfail(
    raises=AssertionError, reason="a node where nothing is placed, and no ledger, is taken for a new one"
)
def test_a_ledger_that_was_lost_before_anything_was_bound_is_rebuilt() -> None:
    """Whoever starts afterwards cannot tell it from one that never was."""
    world = World()
    world.add_pod("q")
    binding_under_way(world)
    Replica(world).bind("q")
    world.deliver_late()


@pytest.mark.xfail(raises=AssertionError, reason="the pods to be fenced are those that were heard of")
def test_a_ledger_is_rebuilt_although_the_watch_of_pods_is_behind() -> None:
    """A live list of the unbound pods would show the one whose Binding is under way."""
    world = World()
    world.add_pod("q")
    replica = Replica(world)
    binding_under_way(world)
    replica.state.nodes.replaced([msgspec.convert(world.store.get(NODES, "", "n1"), Node)])
    drive(repair(replica.state, "n1"), world.execute)
    replica.bind("q")
    world.deliver_late()
