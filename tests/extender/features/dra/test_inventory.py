"""Which GPUs of a node can be allocated by what the driver publishes."""

from __future__ import annotations

from typing import Final

import pytest

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.inventory import DeviceId, NodeInventory, read_inventory, taken_by
from tests.dra import Json, allocated, gpu, mig, read_claim, read_slice, resource_slice, vfio

NODE: Final = "node-1"


def inventory(*slices: Json) -> NodeInventory:
    return read_inventory(NODE, [read_slice(item) for item in slices])


def allocatable(*slices: Json) -> set[str]:
    return {item.uuid for item in inventory(*slices).allocatable()}


def counting(item: Json, counters: str, amount: str) -> Json:
    return item | {"consumesCounters": [{"counterSet": counters, "counters": {"slices": {"value": amount}}}]}


def with_counters(devices: list[Json], **limits: str) -> list[Json]:
    counters = resource_slice(NODE, [], name="counters", slices=2)
    counters["spec"]["sharedCounters"] = [
        {"name": name, "counters": {"slices": {"value": limit}}} for name, limit in limits.items()
    ]
    return [resource_slice(NODE, devices, slices=2), counters]


def test_whole_gpus_are_known_by_uuid() -> None:
    """Neither MIG devices nor those for virtual machines are."""
    read = inventory(resource_slice(NODE, [gpu(0, "GPU-0"), mig(1, "GPU-1", 0), vfio(2)]))
    assert [(uuid, item.id.name) for uuid, item in read.gpus.items()] == [("GPU-0", "gpu-0")]


@pytest.mark.parametrize(
    ("slices", "uuids"),
    [
        ([resource_slice(NODE, [gpu(0, "GPU-0")], slices=2)], set()),
        ([resource_slice(NODE, [gpu(0, "GPU-0")]), resource_slice(NODE, [], name="b", generation=2, slices=2)], set()),
        (
            [resource_slice(NODE, [gpu(0, "GPU-0")]), resource_slice(NODE, [gpu(1, "GPU-1")], name="b", generation=2)],
            {"GPU-1"},
        ),
        ([resource_slice(NODE, [gpu(0, "GPU-0"), gpu(0, "GPU-1")])], set()),
        ([resource_slice(NODE, [gpu(0, "GPU-0")], driver="other.example.com")], set()),
    ],
    ids=["incomplete", "newest incomplete", "newest complete", "names twice", "another driver"],
)
def test_only_a_complete_pool_of_the_newest_generation_counts(slices: list[Json], uuids: set[str]) -> None:
    """What an older generation says may be wrong."""
    assert allocatable(*slices) == uuids


def test_devices_of_other_nodes_are_not_here() -> None:
    """A pool may span nodes."""
    elsewhere = resource_slice("node-2", [gpu(0, "GPU-0")])
    assert not inventory(elsewhere).gpus


def test_what_any_claim_holds_is_taken() -> None:
    """Of any class; one that only looks takes nothing."""
    claims = [read_claim(allocated("a", NODE, "gpu-0")), read_claim(allocated("b", NODE, "gpu-1", admin=True))]
    assert taken_by(claims) == {DeviceId(DRIVER, NODE, "gpu-0"): "ml/a"}


def test_gpus_that_cannot_all_be_allocated_at_once_are_excluded() -> None:
    """Which of them may be is a search that is not made."""
    devices = [counting(gpu(number, f"GPU-{number}"), "power", "6") for number in range(2)]
    assert not allocatable(*with_counters(devices, power="8"))
    assert len(allocatable(*with_counters(devices, power="12"))) == 2


@pytest.mark.parametrize(
    "field",
    [
        {"bindingConditions": ["x.org/ready"]},
        {"allowMultipleAllocations": True},
        {"consumesCounters": [{"counterSet": "a", "compatibilityGroups": ["mig"]}]},
    ],
)
def test_devices_with_conditions_of_their_own_are_excluded(field: Json) -> None:
    """Their allocation needs more than is written."""
    assert allocatable(resource_slice(NODE, [gpu(0, "GPU-0") | field, gpu(1, "GPU-1")])) == {"GPU-1"}


def test_a_gpu_that_is_published_twice_is_excluded() -> None:
    """Two names for one GPU could be allocated twice."""
    assert not allocatable(resource_slice(NODE, [gpu(0, "GPU-0"), gpu(1, "GPU-0")]))


def test_counters_that_cannot_be_read_exclude_their_gpus() -> None:
    """Others of the pool are not concerned."""
    devices = [counting(gpu(0, "GPU-0"), "zero", "much"), gpu(1, "GPU-1")]
    assert allocatable(*with_counters(devices, zero="8")) == {"GPU-1"}
