"""The simulated product is the product: its choices are the extender's answers."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.placement.policies import UnknownPolicy, check_policy, policy_for_pods
from tests.benchmarks.placement.builders import cluster_of, job
from topology.catalog import machine
from topology.links import Affinity
from topology.placement import Placement, TopologyClass, plan
from topology.request import GpuRequest


def test_the_gpus_are_those_of_the_plan() -> None:
    """On one node there is nothing but `plan` to decide."""
    cluster = cluster_of("dgx-1v")
    placed = policy_for_pods("gputopo", [])(cluster, Random(0)).place(job(0, 4))
    verdict = plan(TopologyClass(machine("dgx-1v")), 0xFF, GpuRequest(4, preferred=Affinity.NVLINK))
    assert isinstance(verdict, Placement)
    assert placed is not None
    assert placed[0].gpus == verdict.gpus


def test_foresight_is_read_from_the_name() -> None:
    """`gputopo@0` looks at the pod alone; a word that is no number is refused with the names that there are."""
    for name in ("gputopo@0", "gputopo@0.5:8", "gputopo-told@1"):
        check_policy(name)
    with pytest.raises(UnknownPolicy, match="stock-least"):
        check_policy("gputopo@much")
