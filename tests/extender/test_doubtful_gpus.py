"""What nodes say of doubtful GPUs: pods get them last, on the node and among nodes, and no other way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.kinds import Node
from extender.cluster.state import ClusterState
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import args, at, cluster, free, gpus, node, pod, running
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

A100 = "dgx-a100"


def doubting(name: str, *positions: int, healthy: bool = True, mode: Mode = Mode.ENFORCE) -> Node:
    """Return a node whose GPUs at these positions are doubtful."""
    named = gpus(name, *positions, machine_name=A100)
    doubted = tuple(GpuStatus(gpu, healthy=healthy, doubtful=True) for gpu in named)
    status = NodeGpuStatus(1, doubted, device_plugin=DevicePluginStatus(mode, ready=True))
    return node(name, A100, status=encode_status(status))


def order(state: ClusterState, count: int, *names: str) -> list[str]:
    """Return the nodes best first, as filter offers them once the searches have come to their end."""
    filter_nodes(state, args(pod("p", count), *names), at())
    for _ in state.effort.work():
        pass
    state.memory.offers.forget("p")
    return list(filter_nodes(state, args(pod("p", count), *names), at()).node_names or ())


def chosen(state: ClusterState, count: int, name: str = "n1") -> list[int]:
    found = state.views[name].decide_for("p", GpuRequest.plain(count))
    assert isinstance(found, Placement)
    return sorted(found.gpus)


def test_a_pod_gets_an_equal_in_its_place() -> None:
    """By the same decision as everywhere."""
    state = cluster(doubting("n1", 0))
    assert chosen(state, 1) == [1]
    assert chosen(state, 4) == [2, 3, 4, 5]
    assert chosen(state, 8) == [*range(8)]


def test_a_doubtful_gpu_is_free_all_the_same() -> None:
    """It counts, and where nothing else is free it is given."""
    state = cluster(doubting("n1", 0), running("other", "n1", *gpus("n1", *range(1, 8), machine_name=A100)))
    assert free(state) == (0,)
    assert chosen(state, 1) == [0]


def test_a_closed_gpu_is_never_doubtful() -> None:
    """It is not free, and so nobody gets it last."""
    state = cluster(doubting("n1", 0, healthy=False))
    assert free(state) == (1, 2, 3, 4, 5, 6, 7)
    assert (state.views["n1"].doubtful, state.views["n1"].shape.doubtful) == (0, 0)


@pytest.mark.parametrize("mode", Mode)
def test_of_equal_nodes_the_one_that_gives_sound_gpus_comes_first(mode: Mode) -> None:
    """A pod of eight takes all of a node, whoever hands them out: the names would have said otherwise."""
    state = cluster(doubting("n1", 5, mode=mode), doubting("n2", mode=mode), doubting("n3", 1, 2, mode=mode))
    assert order(state, 8, "n1", "n2", "n3") == ["n2", "n1", "n3"]
    asked = args(pod("p", 8), "n1", "n2", "n3")
    assert {each.host: each.score for each in prioritize_nodes(state, asked, at())} == {"n1": 9, "n2": 10, "n3": 9}


def test_a_node_is_not_shunned_for_gpus_that_the_pod_would_not_get() -> None:
    """It has sound ones enough, so its name comes first as ever."""
    state = cluster(doubting("n1", 5), doubting("n2"))
    assert order(state, 4, "n1", "n2") == ["n1", "n2"]


def test_holds_for_others_leave_that_order() -> None:
    """Where a GPU is held for another pod, a node is looked at on its own; the doubt counts there, too."""
    state = cluster(doubting("n1", 5), doubting("n2"))
    for name in ("n1", "n2"):
        state.holds.put(f"other-{name}", Hold(name, 0b1, expires=60.0))
    assert order(state, 7, "n1", "n2") == ["n2", "n1"]


def test_a_better_node_is_better_with_a_doubtful_gpu() -> None:
    """What a node is worth comes first: an NVSwitch with a doubtful GPU beats a cube mesh without one."""
    state = cluster(doubting("n2", 5), node("n1", "dgx-1v"))
    assert order(state, 8, "n1", "n2") == ["n2", "n1"]


@pytest.mark.parametrize("doubts", [{}, {"n1": (0, 3)}])
def test_nodes_without_doubts_keep_their_shape(doubts: Mapping[str, tuple[int, ...]]) -> None:
    """So all that is remembered of them stays good; one with a doubt has another shape than one without."""
    state = cluster(doubting("n1", *doubts.get("n1", ())), doubting("n2"))
    assert (state.views["n1"].shape == state.views["n2"].shape) is not bool(doubts)


def test_a_doubt_about_a_gpu_in_use_makes_no_other_shape() -> None:
    """It decides nothing now; when the GPU is free again it does."""
    used = gpus("n1", 0, machine_name=A100)
    state = cluster(doubting("n1", 0), running("other", "n1", *used), doubting("n2"))
    assert state.views["n1"].shape.doubtful == 0
    assert state.views["n1"].doubtful == 1
