"""What is said of nodes that do not exist: in `what-if`, in `why`, and of pods that wait."""

from __future__ import annotations

from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.status import status
from extender.inspect.waiting import waiting_pod
from extender.inspect.what_if import what_if
from extender.inspect.why import why
from tests.extender.builders import DGX, at, cluster, node
from tests.extender.scattered import placeholder, ring, scattered
from tests.extender.shares import sharer
from topology.formats.catalog import machine

FOUR_LEFT = (0, 2, 4, 6)


def test_a_pod_hears_which_new_nodes_would_do() -> None:
    """Of groups that have nodes, by what these publish."""
    state = cluster(*scattered("a", *FOUR_LEFT), ring("r1"))
    told, asked = why(state, "ml", "r1", at(), limit=10), what_if(state, ring("r1"), at())
    assert told
    assert told.new_nodes == asked.new_nodes
    assert asked.new_nodes
    assert asked.new_nodes.line == "would fit on a new node of pairs.8"


def test_a_declared_group_needs_no_node() -> None:
    """What the operator says of it is believed."""
    state = ClusterState(expected={"a100.8": machine(DGX)})
    state.nodes.replaced([])
    state.pods.replaced([])
    told = what_if(state, ring("r1", 4), at()).new_nodes
    assert told
    assert told.would_fit == ("a100.8",)


def test_free_sets_of_declared_groups_have_values_before_their_first_node() -> None:
    """They are computed once the extender has started, as those of machines that are there."""
    state = ClusterState(expected={"a100.8": machine(DGX)})
    for _ in state.values.appraise():
        pass
    [group] = state.node_groups
    assert group.empty.topology_class
    assert group.empty.topology_class.appraised is not None


def test_no_new_node_would_do() -> None:
    """No machine in pairs joins four."""
    told = what_if(cluster(*scattered("a", *FOUR_LEFT)), ring("r1", 4), at()).new_nodes
    assert told
    assert told.line == "would fit on a new node of no known group"


def test_nothing_is_said_where_no_group_is_known() -> None:
    """Nodes without the label teach nothing."""
    assert what_if(cluster(node("n1")), ring("r1"), at()).new_nodes is None


def test_of_a_share_nothing_is_said() -> None:
    """What of a new node may be shared, its agent says when it is there."""
    state = cluster(*scattered("a", *FOUR_LEFT))
    assert what_if(state, sharer("s", 10), at()).new_nodes is None
    assert what_if(state, ring("r1", 4), at()).new_nodes is not None


def test_a_placeholder_is_named_and_counted_apart() -> None:
    """It is no pod that waits."""
    state = cluster(*scattered("a", *FOUR_LEFT), ring("r1"), placeholder(ring("r1")))
    told = inspection.explain(state, "ml", "r1", at())
    assert told
    assert told.new_nodes
    assert told.new_nodes.line == (
        "would fit on a new node of pairs.8; a node is asked for by the placeholder gputopo-placeholders/gputopo-r1-x"
    )
    found = state.pods.get("r1")
    assert found
    assert waiting_pod(state, found, at()).is_node_asked_for
    assert (status(state).pods, status(state).waiting, status(state).placeholders) == (2, 1, 1)
    assert status(state).findings == ()


def test_a_node_that_is_new_alarms_nobody() -> None:
    """It has GPUs by count, and its agent has not reported yet."""
    fresh = node("fresh", topology=None, status=None, observed=None, claims=None)
    assert status(cluster(node("n1"), fresh)).findings == ()
