"""How slices are offered: by somebody else's plugin, and by ours."""

from __future__ import annotations

import pytest

from agent.plugin.choice.best import Scorer
from agent.plugin.devices.mig import strategy_of, why_unserved, withheld_slices
from tests.extender.mig import cut
from topology.annotations.keys import SHARE_RESOURCE
from topology.node.status import MigStrategy

GPU, SMALL = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("offered", "strategy"),
    [
        ({}, None),
        ({GPU: {"GPU-a"}}, MigStrategy.NONE),
        ({GPU: {"MIG-a"}}, MigStrategy.SINGLE),
        ({GPU: {"GPU-a"}, SMALL: {"MIG-a"}}, MigStrategy.MIXED),
        ({GPU: {"MIG-a::0", "MIG-a::1"}}, MigStrategy.NONE),
        ({GPU: {"MIG-a", "MIG-b::0"}}, MigStrategy.SINGLE),
        ({SHARE_RESOURCE: {"GPU-a::0"}}, MigStrategy.NONE),
        ({GPU: set()}, None),
        ({"example.com/mig-1g.10gb": {"MIG-a"}}, None),
    ],
)
def test_strategy_is_read_off_the_devices(offered: dict[str, set[str]], strategy: MigStrategy | None) -> None:
    """Whoever offers nothing may be starting; shared slices are none that a pod can have."""
    assert strategy_of(GPU, offered) is strategy


def test_slices_that_are_not_offered_are_closed_one_by_one() -> None:
    """A plugin that has not seen a new cut yet, or that shares some; with the strategy none nothing is said of each."""
    offered = {GPU: {"GPU-a"}, SMALL: {"MIG-a", "MIG-b::0"}, "example.com/mig": {"MIG-c", "MIG-d::0"}}
    slices = ["MIG-a", "MIG-f", "MIG-b", "MIG-e", "MIG-c", "MIG-d"]
    assert list(withheld_slices(GPU, MigStrategy.MIXED, offered, slices).items()) == [
        ("MIG-b", "shared by the device plugin"),
        *((each, "not offered by the device plugin") for each in ("MIG-c", "MIG-d", "MIG-e", "MIG-f")),
    ]
    assert withheld_slices(GPU, MigStrategy.NONE, offered, slices) == {}


@pytest.mark.parametrize(
    ("strategy", "profiles", "whole", "why"),
    [
        (MigStrategy.MIXED, {"1g.10gb", "3g.40gb"}, True, ""),
        (MigStrategy.SINGLE, {"1g.10gb"}, False, ""),
        (MigStrategy.SINGLE, {"1g.10gb"}, True, "GPUs of the node are whole"),
        (MigStrategy.SINGLE, {"1g.10gb", "3g.40gb"}, False, "they are 1g.10gb, 3g.40gb"),
        (MigStrategy.NONE, {"1g.10gb"}, True, "the MIG strategy is none"),
    ],
)
def test_we_serve_what_the_strategy_can_mean(strategy: MigStrategy, profiles: set[str], whole: bool, why: str) -> None:
    """Where NVIDIA's plugin would not start, whole GPUs are served, and slices are not."""
    said = why_unserved(strategy, profiles, has_whole_gpus=whole)
    assert said.endswith(why) and bool(said) is bool(why)


def test_choice_of_last_resort_takes_slices_out_of_the_fullest_gpu() -> None:
    """For a pod without a plan, or whose plan cannot be had; and slices have no order among them."""
    node = cut("n1", {6: ("1g.10gb",) * 7, 7: ("1g.10gb",) * 7})
    scorer = Scorer(node)
    pool = frozenset(node.devices[8:15]) | {node.devices[21]}
    assert scorer.best(pool, frozenset(), 1) == (node.devices[21],)
    assert scorer.best(pool, frozenset(), 9) is None
    assert scorer.ring(reversed(node.devices[8:10])) == node.devices[8:10]
