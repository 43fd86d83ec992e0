"""What pods request by their claims, and on which nodes all free GPUs suit them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from extender.cluster.objects.kinds import Pod
from extender.features.dra import demands as module
from extender.features.dra.cel_cost import MAX_COST
from tests.dra import gpu, read_claim, read_slice, resource_slice
from tests.extender.features.dra.cases import GPU, claim, exactly
from tests.extender.features.dra.claim_site import ClaimSite
from topology.errors import RequestError
from topology.formats.catalog import machine

NODE = "n0"
NVIDIA = f'{GPU}.productName.startsWith("NVIDIA")'


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Count the calls of a function."""
    function: Callable[..., Any] = getattr(module, name)
    calls = list[Any]()

    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(module, name, call)
    return calls


def request(site: ClaimSite, name: str, *selectors: str, version: int = 1, **devices: Any) -> Pod:
    """Let the watch show a pod, and the claim that was made for it."""
    made = claim(f"of-{name}", exactly(1, "gpus", *selectors), **devices)
    owner = {"kind": "Pod", "name": name, "uid": name, "controller": True}
    made["metadata"] |= {"ownerReferences": [owner], "resourceVersion": f"{version}"}
    pod = {
        "metadata": {"name": name, "namespace": "ml", "uid": name},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": f"of-{name}"}]},
    }
    state, read = site.planner.state, msgspec.convert(pod, Pod)
    state.claims.changed(read_claim(made))
    state.pods.changed(read)
    return read


def publish(site: ClaimSite, *islands: int) -> None:
    """Publish the node's GPUs, each with the number of its island."""
    uuids = [item.uuid for item in machine("dgx-a100", host=NODE).gpus]
    devices = [gpu(at, uuid) for at, uuid in enumerate(uuids)]
    for device, island in zip(devices, islands, strict=True):
        device["attributes"]["island"] = {"int": island}
    site.planner.state.claims.slices.changed(read_slice(resource_slice(NODE, devices)))


def test_what_a_pod_requests_is_read_once_for_each_version_of_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = counted(monkeypatch, "read_demands")
    site = ClaimSite(1, Random(0))
    for version in (1, 2):
        pod = request(site, "a", version=version)
        assert [site.planner.dra.demands.of(pod).alternatives[0].gpus for _ in range(5)] == [1] * 5
        assert len(reads) == version


def test_the_gpus_of_a_node_are_compared_once_with_the_same_selectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pods have them; and again when the node's driver publishes something else."""
    comparisons = counted(monkeypatch, "suitable_sets")
    site = ClaimSite(1, Random(0))
    for name in "abc":
        request(site, name, NVIDIA)
    request(site, "d", f"!{NVIDIA}")
    assert [site.planner.dra.demands.fits(name, NODE, 0) for name in "abcdabcd"] == [True, True, True, False] * 2
    assert len(comparisons) == 2
    publish(site, *[1] * 8)
    assert site.planner.dra.demands.fits("a", NODE, 0)
    assert len(comparisons) == 3


def test_costly_selectors_are_compared_in_steps() -> None:
    """A node with eight GPUs costs about eight milliseconds."""
    site = ClaimSite(1, Random(0))
    request(site, "a", f"[{','.join('1' * 50)}].all(x, {GPU}.uuid != 'x')")
    demands, effort, steps = site.planner.dra.demands, site.planner.state.effort, list[int]()
    fits = None
    while fits is None:
        before = demands.selectors.meter.steps
        with effort.bounded(3_000):
            fits = demands.fits("a", NODE, 0)
        steps.append(demands.selectors.meter.steps - before)
    assert fits and len(steps) >= 4
    assert max(steps) < 3_000 + MAX_COST // 5


def test_the_selectors_of_a_namespace_are_evaluated_for_so_many_nodes_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others fit when its allowance is renewed."""
    monkeypatch.setattr(module, "STEPS", 1)
    site = ClaimSite(1, Random(0))
    for name in "ab":
        request(site, name, f"{GPU}.uuid != '{name}'")
    demands = site.planner.dra.demands
    assert [demands.fits(name, NODE, 0) for name in "aba"] == [True, False, True]
    asyncio.run(site.planner.dra.renew_allowances())
    assert demands.fits("b", NODE, 0)


def test_a_pod_fits_where_all_free_gpus_have_the_value_that_it_needs_in_common() -> None:
    """Held ones may have another value, and be more."""
    site = ClaimSite(1, Random(0))
    site.create("larger", 5)
    asyncio.run(site.tick())
    request(site, "a", constraints=[{"matchAttribute": "gpu.nvidia.com/island"}])
    free = [site.planner.state.views[NODE].shape.free >> at & 1 for at in range(8)]
    assert sum(free) == 3
    publish(site, *free)
    assert site.planner.dra.demands.fits("a", NODE, 0)
    publish(site, *range(8))
    assert not site.planner.dra.demands.fits("a", NODE, 0)


def test_a_pod_whose_claims_are_gone_requests_nothing_that_can_be_read() -> None:
    """The reason says so."""
    site = ClaimSite(1, Random(0))
    pod = request(site, "a")
    site.planner.state.claims.replaced([])
    with pytest.raises(RequestError, match="its ResourceClaims are gone"):
        site.planner.dra.demands.of(pod)
