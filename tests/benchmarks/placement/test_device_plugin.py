"""Where no scheduler imposes GPUs the device plugin chooses, from the kubelet's random order, whoever chose the node."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from benchmarks.placement.cluster import Allotment
from benchmarks.placement.device_plugin import NvidiaPlugin, PlainPlugin
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policies import BASELINES, INFORMED, PRODUCT, policy_for_pods
from benchmarks.placement.policy import ByPlugin
from tests.benchmarks.placement.builders import cluster_of, job

BY_PLUGIN = {"stock-least", "stock-most", "stock-least-plain", "stock-most-plain", "gpushare", "gputopo-observe"}
"""Policies that impose no GPUs, or not on all pods; the others have a device plugin, a hook or a container of their own."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BASELINES, *INFORMED, PRODUCT, "gputopo-observe"])
def test_a_policy_chooses_gpus_or_leaves_them_to_the_plugin(name: str) -> None:
    assert isinstance(policy_for_pods(name, [])(cluster_of("dgx-1v"), Random(0)), ByPlugin) == (name in BY_PLUGIN)


@pytest.mark.parametrize("name", sorted(BY_PLUGIN - {"gpushare"}))
def test_the_order_is_the_kubelets_for_every_policy_that_imposes_nothing(name: str) -> None:
    """A pod of one GPU gets any of those that are free, as often as every other one."""
    cluster = cluster_of("dgx-1v")
    cluster.take(Allotment(0, (0, 1, 2, 3), PodSize(4)))
    policy = policy_for_pods(name, [])(cluster, Random(0))
    counted = Counter(placed[0].gpus for _ in range(400) if (placed := policy.place(job(0, 1))))
    assert sorted(counted) == [(4,), (5,), (6,), (7,)]
    assert min(counted.values()) > 60


def test_gpushare_imposes_one_gpu_and_no_more() -> None:
    policy = policy_for_pods("gpushare", [])(cluster_of("dgx-1v"), Random(0))
    ones = {placed[0].gpus for _ in range(50) if (placed := policy.place(job(0, 1)))}
    fours = {placed[0].mask for _ in range(50) if (placed := policy.place(job(0, 4)))}
    assert (ones, fours) == ({(0,)}, {0x0F, 0xF0})


@pytest.mark.parametrize("plugin", [NvidiaPlugin, PlainPlugin])
def test_a_plugin_hands_out_what_its_chances_say(plugin: type[NvidiaPlugin | PlainPlugin]) -> None:
    """Two of the GPUs 0, 3, 4 and 6, a thousand times."""
    cluster = cluster_of("dgx-1v")
    cluster.take(Allotment(0, (1, 2, 5, 7), PodSize(4)))
    (node,) = cluster.nodes
    chosen = plugin(Random(1))
    counted = Counter(sum(1 << gpu for gpu in chosen.hand_out(node, 2)) for _ in range(1000))
    expected = {outcome.gpus: outcome.share for outcome in chosen.outcomes(node.server.topology, node.free, 2)}
    assert {mask: count / 1000 for mask, count in counted.items()} == pytest.approx(expected, abs=0.05)


def test_the_orders_follow_from_the_seed_and_leave_other_lots_alone() -> None:
    def run(seed: int) -> list[tuple[int, ...]]:
        cluster, random = cluster_of("dgx-1v"), Random(seed)
        plugin = PlainPlugin(random)
        assert random.getstate() == Random(seed).getstate()
        return [plugin.hand_out(cluster.nodes[0], 3) for _ in range(5)]

    assert run(1) == run(1) != run(2)
