"""The second line of defence: before a gate is opened, the watch of claims has shown whether a device has another owner."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from extender.binding.intents import AllocateClaim, Intent, OpenGate, Reply
from extender.features.dra.allocations import AllocationOutcome
from tests.extender.features.dra.claim_site import CLAIMS, ClaimSite
from tests.extender.features.dra.taint_rules import TaintRules


@pytest.mark.parametrize("is_fast", [False, True], ids=["watch after the reply", "watch before the reply"])
@pytest.mark.parametrize("device", ["gpu-3", "gpu-vfio-3"], ids=["the GPU", "a device that no slice names"])
def test_no_gate_is_opened_while_another_claim_may_have_a_device_of_the_pod(device: str, *, is_fast: bool) -> None:
    """kube-scheduler gave it away just before our write, so the watch shows that first. The pod is planned elsewhere."""
    site = ClaimSite(2, Random(0))
    site.create("a", 8)
    nodes = list[str]()

    def meddle(intent: Intent) -> Reply | None:
        if nodes or not isinstance(intent, AllocateClaim):
            return None
        nodes.append(_node_of(intent))
        site.create_strangers("theirs")
        site.allocate_strangers("theirs", nodes[0], device)
        reply = site.world.execute(intent)
        if is_fast:
            site.planner.hear_of_claims()
        return reply

    site.answer = meddle
    for _ in range(8):
        asyncio.run(site.tick())
    assert nodes and opened(site) == [node for node in site.names if node not in nodes]
    assert site.node_of("a") == opened(site)[0]
    assert site.world.claims(nodes[0]) == {}


def _node_of(intent: AllocateClaim) -> str:
    """Return the pool of its first device, which NVIDIA names after the node."""
    assert intent.allocation is not None
    devices: Any = intent.allocation["devices"]
    return str(devices["results"][0]["pool"])


@pytest.mark.parametrize("is_policed", [False, True], ids=["no policy", "a claim from before the policy"])
def test_a_device_that_is_given_away_just_after_our_write_is_given_back(*, is_policed: bool) -> None:
    """kube-scheduler had not seen our allocation when it chose the device; meanwhile the gate stays."""
    site = ClaimSite(2, Random(0))
    site.planner.dra.guard.policy_in_force = is_policed
    site.create_strangers("theirs")
    site.create("a", 8)
    asyncio.run(site.tick())
    ((node, _),) = site.allocations().values()
    assert not opened(site)
    site.allocate_strangers("theirs", node, "gpu-3")
    for _ in range(8):
        asyncio.run(site.tick())
    assert opened(site) == [name for name in site.names if name != node]


def test_nothing_waits_where_nobody_else_can_allocate() -> None:
    """The policy is in force, and no claim waits that kube-scheduler would give a GPU."""
    site = ClaimSite(1, Random(0))
    site.planner.dra.guard.policy_in_force = True
    site.create_strangers("nic", "nic.example.com")
    site.create("a", 8)
    asyncio.run(site.tick())
    assert opened(site) == site.names


def test_kube_scheduler_is_kept_from_devices_before_they_are_allocated_where_it_may_choose_them() -> None:
    """What it chose before it saw the taint is seen in time. So nothing has to be taken back, which it would take for free."""
    site = ClaimSite(2, Random(0), rules=TaintRules())
    site.create_strangers("theirs")
    site.create("a", 8)
    asyncio.run(site.tick())
    assert site.rules
    (node,) = {device.partition("/")[0] for device in site.rules.devices.values()}
    assert len(site.rules.devices) == 8 and site.allocations() == {}
    site.allocate_strangers("theirs", node, "gpu-3")
    site.ticks(40)
    assert opened(site) == [name for name in site.names if name != node]
    assert site.planner.counted(AllocationOutcome.TAKEN_BACK) == 0
    assert site.rules.devices == {}


def test_kube_scheduler_is_kept_from_nothing_where_nobody_else_can_allocate() -> None:
    """The policy is in force, and no older claim of NVIDIA's class waits."""
    site = ClaimSite(1, Random(0), rules=TaintRules())
    site.planner.dra.guard.policy_in_force = True
    site.create("a", 8)
    asyncio.run(site.tick())
    assert opened(site) == site.names
    assert site.rules and "POST" not in site.rules.requests


def test_kube_scheduler_is_kept_from_devices_for_a_while_after_a_claim_of_nvidias_class_came() -> None:
    """The next one may come between our last look and our write, though the policy is in force."""
    site = ClaimSite(1, Random(0), rules=TaintRules())
    site.planner.dra.guard.policy_in_force = True
    site.create_strangers("theirs")
    site.allocate_strangers("theirs", "elsewhere", "gpu-0")
    site.ticks(1)
    site.create_strangers("nvidias")
    site.world.store.delete(CLAIMS, "default", "nvidias")
    site.create("a", 8)
    site.ticks(1)
    assert site.rules and len(site.rules.devices) == 8
    site.ticks(4)
    assert opened(site) == site.names


def opened(site: ClaimSite) -> list[str]:
    """Return where pods have been sent."""
    return [intent.node for intent in site.world.intents if isinstance(intent, OpenGate)]
