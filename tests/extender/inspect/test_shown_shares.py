"""What people see of GPUs that pods share."""

from __future__ import annotations

import pytest

from extender.cluster.state import ClusterState
from extender.inspect.fragmentation import fragmentation
from extender.inspect.inspection import Explanation, FittingNode, NodeDetail, NodeList, PodInfo, node
from extender.inspect.share_room import ShareRoom
from extender.inspect.shares import SharedGpuInfo
from extender.kit.clock import Instant
from extender.kubectl.device_rows import share_rows
from extender.kubectl.form import Form, Output
from extender.kubectl.output import print_nodes, print_pod, print_top
from extender.kubectl.snapshot import AgentReadings
from extender.kubectl.top import top
from extender.telemetry.gauges import gauges_of
from extender.web.pages import node_page
from tests.extender.builders import DGX, cluster, gpus
from tests.extender.shares import SHARE_GIB, share, sharing, sharing_node
from topology.node.sharing import Limits

FIRST, SECOND = gpus("n1", 0, 1, machine_name=DGX)
NOW = Instant(0.0, 0.0)


def two_share_one() -> ClusterState:
    """Two pods of one class share the first GPU, and one has the second one to itself so far."""
    claims = share(FIRST, "a", 10, "prod"), share(FIRST, "b", 20, "prod"), share(SECOND, "c", 4)
    pods = sharing("a", FIRST, 10, "prod"), sharing("b", FIRST, 20, "prod"), sharing("c", SECOND, 4)
    return cluster(sharing_node(*claims, beyond={SECOND: 8}), *pods)


def shown() -> NodeDetail:
    found = node(two_share_one(), "n1", NOW)
    assert found is not None
    return found


def test_each_share_is_shown_with_its_holder_and_its_class() -> None:
    """And the GPU with what is left."""
    first, second = shown().shared
    assert [(each.pod, each.memory_gib, each.sharing_class) for each in first.shares] == [
        ("ml/a", 10, "prod"),
        ("ml/b", 20, "prod"),
    ]
    assert (first.used_gib, first.left_gib, first.sharing_class) == (30, SHARE_GIB - 30, "prod")
    assert second.line == f"4 of {SHARE_GIB} GiB, 8 GiB used beyond shares"
    assert second.left_gib == SHARE_GIB - 4 - 8


def test_a_gpu_that_several_share_is_no_ones() -> None:
    """One that a single pod has a share of is called by its name."""
    first, second, third, *_ = shown().gpus
    assert [(each.state, each.pod) for each in (first, second, third)] == [
        ("shared", None),
        ("shared", "ml/c"),
        ("free", None),
    ]


def test_shared_gpus_have_a_column_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Free, in use, shared, held and unusable ones add up to the GPUs of the node."""
    print_nodes(NodeList(nodes=(shown(),)), Form(Output.WIDE))
    heads, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heads[-6:] == ["FREE", "NOTE", "IN-USE", "SHARED", "HELD", "UNUSABLE"]
    assert row[-6:] == ["6", "<none>", "0", "2", "0", "0"]


def test_an_idle_gpu_that_several_share_is_told_with_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """It is held, though no one has it alone."""
    heard = AgentReadings({"n1": {FIRST: {"utilization_ratio": 0.0}}}, {})
    print_top(top([shown()], heard, idle=True), Form())
    (row,) = capsys.readouterr().out.splitlines()[1:]
    assert row.split()[:5] == ["n1", "0", "shared", "ml/a,ml/b", "0%"]


def test_a_score_of_next_to_nothing_has_no_sign(capsys: pytest.CaptureFixture[str]) -> None:
    """A share beside others often costs the pods to come nothing."""
    fit = FittingNode(node="n1", score=-1e-9, gpus=1, indexes=(0,), affinity=None, bandwidth_gb_per_s=None)
    pod = PodInfo(
        namespace="ml",
        name="a",
        uid="",
        phase=None,
        gpus=0,
        node=None,
        containers=None,
        indexes=(),
        affinity=None,
        bandwidth_gb_per_s=None,
        shares_gib=(10,),
    )
    print_pod(Explanation(pod=pod, fits=(fit,), refusals=(), problem=None), Form())
    assert "n1     0.000   1" in capsys.readouterr().out


def test_the_share_of_a_placed_pod_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """By container, with what holds it to that."""
    pod = PodInfo(
        namespace="ml",
        name="a",
        uid="",
        phase="Running",
        gpus=0,
        node="n1",
        containers={"main": ("GPU-x",)},
        memory_gib={"main": 10},
        limits=Limits("cgroup"),
        indexes=(0,),
        affinity=None,
        bandwidth_gb_per_s=None,
        shares_gib=(10,),
    )
    print_pod(Explanation(pod=pod, fits=(), refusals=(), problem=None), Form())
    assert capsys.readouterr().out.startswith("ml/a: on n1: main has 10 GiB, limits by cgroup\n")


def test_people_are_told_what_holds_containers_to_their_shares() -> None:
    """Level, bound, and why it is not stronger."""
    told = shown().sharing
    assert told is not None
    assert told.line == "at most 8 GPUs, nothing limits them"


def test_a_bar_shows_how_full_a_gpu_is() -> None:
    """One row for each share; the GPU is named once."""
    first, _ = shown().shared
    rows = [*share_rows(first)]
    assert rows[0] == ("0", f"{'█' * 13}{'░' * 3} 30 of {SHARE_GIB} GiB", "prod", "ml/a", "main", "10")
    assert rows[1] == ("", "", "prod", "ml/b", "main", "20")


def test_a_gpu_whose_last_share_has_ended_is_shown_empty() -> None:
    """Its node has not told yet that it is whole again."""
    gpu = SharedGpuInfo(
        gpu=3, uuid="GPU-x", share_gib=39, left_gib=39, beyond_shares_gib=0, sharing_class=None, shares=()
    )
    assert [*share_rows(gpu)] == [("3", f"{'░' * 16} 0 of 39 GiB", "", "", "", "")]


def test_room_for_shares_is_counted_by_size() -> None:
    """Six whole GPUs, 9 GiB beside the first two shares, and 27 beside the third."""
    rooms = {room.gib: room for room in fragmentation(two_share_one()).shares}
    assert rooms[8] == ShareRoom(gib=8, now=6 * 4 + 1 + 3, by_memory=(6 * 39 + 9 + 27) // 8, empty=8 * 4)
    assert rooms[32].now == 6


def test_where_nothing_is_shared_no_room_is_told() -> None:
    """Nor does the answer have such a key."""
    assert "shares" not in fragmentation(cluster()).model_dump()


def test_gauges_count_shares() -> None:
    """GPUs, and GiB that are taken and left."""
    figures = gauges_of(two_share_one())
    assert (figures["gpus_shared"], figures["share_gib_taken"], figures["share_gib_left"]) == (2, 34, 9 + 27)


def test_the_page_draws_a_bar_for_each_gpu_and_each_share() -> None:
    """With the figures in words for those who do not see it."""
    page = "".join(node_page(shown(), ()))
    assert f'aria-label="GPU0: 30 of {SHARE_GIB} GiB"' in page
    assert f'aria-label="ml/b: 20 of {SHARE_GIB} GiB"' in page
    assert "nothing limits them" in page
