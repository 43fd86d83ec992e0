"""MIG devices of a node as they are published, requests for them, and what the validator refuses."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.allocation import allocate
from extender.features.dra.claim_spec import MIG_CLASS, OUR_CLASS, DeviceClass
from extender.features.dra.inventory import MAX_AMOUNTS, MAX_DEVICES, DeviceId, NodeInventory, read_inventory
from extender.features.dra.profiles import selector_of
from extender.features.dra.requests import DeviceDemand, is_ours, read_demands
from extender.features.dra.selectors import Selectors
from extender.features.dra.validate import InvalidAllocation, validate
from tests.dra import Json, gpu, mig, partitioned, read_claim, read_slice, resource_slice, static_mig
from tests.extender.features.dra.cases import GPU, NODE, TAINT, claim, device_class, exactly
from topology.errors import RequestError

SELECTORS: Final = Selectors()
CLASSES: Final = dict.fromkeys((OUR_CLASS, MIG_CLASS), msgspec.convert(device_class(), DeviceClass))
SMALL: Final = "1g.5gb"


def inventory(*slices: Json) -> NodeInventory:
    return read_inventory(NODE, [read_slice(item) for item in slices])


def of_mig(count: int, *selectors: str, name: str = "gpus", **more: Any) -> Json:
    """Return a request for MIG devices; without selectors of the small profile."""
    request = exactly(count, name, *(selectors or (selector_of(SMALL),)), **more)
    request["exactly"]["deviceClassName"] = MIG_CLASS
    return request


def demand(*requests: Json, **devices: Any) -> DeviceDemand:
    (read,) = read_demands([read_claim(claim("a", *requests, **devices))], CLASSES, SELECTORS)
    return read


def test_what_is_made_on_demand_is_told_apart_by_gpu_and_place() -> None:
    """It has no UUID, so it gets one that no device of another GPU has; its memory is what it takes of counters."""
    read = inventory(*partitioned(NODE, ["GPU-a", "GPU-b"]))
    places = sorted((part.gpu, part.profile, part.start, part.size) for part in read.parts.parts)
    assert [place for place in places if place[0] == "GPU-a" and place[1] != SMALL] == [
        ("GPU-a", "2g.10gb", 0, 2), ("GPU-a", "2g.10gb", 2, 2), ("GPU-a", "2g.10gb", 4, 2),
        ("GPU-a", "3g.20gb", 0, 4), ("GPU-a", "3g.20gb", 4, 4),
    ]  # fmt: skip
    assert len(read.parts.uuids) == len(places) == 24 and not read.parts.unusable
    assert all(part.on_demand and part.uuid.startswith("MIG-") and len(part.uuid) == 40 for part in read.parts.parts)


def test_what_was_made_before_has_its_own_uuid_and_excludes_nothing() -> None:
    """Its driver publishes no counters, and not the GPU."""
    (part,) = inventory(resource_slice(NODE, [static_mig(0, "GPU-a", 3)])).parts.parts
    assert (part.uuid, part.start, part.size, part.on_demand) == ("MIG-a-3", 3, 1, False)
    both = inventory(resource_slice(NODE, [gpu(0, "GPU-a"), static_mig(0, "GPU-a", 3)]))
    assert both.parts.parts[0].on_demand, "its GPU is offered whole, too"


@pytest.mark.parametrize(
    "change",
    [
        {"taints": [TAINT]},
        {"allowMultipleAllocations": True},
        {"bindingConditions": ["x.org/ready"]},
        {"consumesCounters": []},
        {"consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": {"multiprocessors": {"value": "much"}}}]},
        {"consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": {"multiprocessors": {"value": "99"}}}]},
    ],
    ids=["tainted", "shared", "conditions", "no counters", "unreadable", "more than there is"],
)
def test_what_cannot_be_allocated_alone_and_at_once_is_given_to_nobody(change: Json) -> None:
    """Others of the GPU are."""
    slices = partitioned(NODE, ["GPU-a"])
    changed = slices[1]["spec"]["devices"][1]
    changed.update(change)
    read = inventory(*slices)
    names = [device.id.name for device in read.allocatable(SMALL)]
    assert len(names) == 6 and changed["name"] not in names


def test_too_many_devices_of_a_node_are_not_told_apart() -> None:
    """No GPU that shares counters is allocated then."""
    slices = partitioned(NODE, [f"GPU-{number}" for number in range(MAX_DEVICES // 13 + 1)])
    read = inventory(*slices)
    assert not read.parts.parts and not [*read.allocatable()]


def test_too_many_amounts_of_counters_are_not_counted() -> None:
    """Each node is read again with each change of a slice."""
    slices = partitioned(NODE, [f"GPU-{number}" for number in range(8)])
    counters = {f"counter-{number}": {"value": "1"} for number in range(MAX_AMOUNTS // 104)}
    for device in [device for item in slices[1:] for device in item["spec"]["devices"]]:
        device["consumesCounters"].append({"counterSet": "more", "counters": counters})
    read = inventory(*slices)
    assert not read.parts.parts and not [*read.allocatable()]


def test_counters_say_what_is_left_beside_others() -> None:
    """Of another GPU everything is."""
    read = inventory(*partitioned(NODE, ["GPU-a", "GPU-b"]))
    half = next(part for part in read.parts.parts if (part.gpu, part.profile, part.start) == ("GPU-a", "3g.20gb", 4))
    exhausted = read.parts.counters.exhausted_beside({half.uuid})
    kept = {(part.profile, part.start) for part in read.parts.parts if part.gpu == "GPU-a" and part.uuid in exhausted}
    assert kept == {(SMALL, 4), (SMALL, 5), (SMALL, 6), ("2g.10gb", 4)}
    assert "GPU-a" in exhausted and "GPU-b" not in exhausted and len(exhausted) == 5
    assert not read.parts.counters.exhausted_beside(())


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'",
        'device.attributes["gpu.nvidia.com"]["profile"]=="1g.5gb"',
        f"'1g.5gb' == {GPU}.profile",
        f"{GPU}.type == 'mig' && {GPU}.profile == '1g.5gb' && {GPU}.productName != 'NVIDIA B200'",
    ],
)
def test_the_profile_is_read_from_a_selector(expression: str) -> None:
    """All other words of the selector are compared with each device as well."""
    read = demand(of_mig(2, expression))
    assert (read.class_name, read.profile, read.gpus, read.selectors) == (MIG_CLASS, SMALL, 2, (expression,))


@pytest.mark.parametrize(
    ("requests", "devices", "reason"),
    [
        ([of_mig(1, f"{GPU}.type == 'mig'")], {}, "no profile for mig.gputopo.dev: request one, as by"),
        ([of_mig(1, f"{GPU}.profile == '1g.5gb' || true")], {}, "no profile"),
        ([of_mig(1, f"{GPU}.type == 'mig' || true && {GPU}.profile == '1g.5gb'")], {}, "no profile"),
        ([of_mig(1, f"!({GPU}.profile == '1g.5gb')")], {}, "no profile"),
        ([of_mig(1, f"{GPU}.profile == 'large'")], {}, "'large' is no MIG profile"),
        ([of_mig(1, selector_of(SMALL), selector_of("2g.10gb"))], {}, "2 profiles for mig.gputopo.dev"),
        ([of_mig(1), of_mig(1, selector_of("2g.10gb"), name="b")], {}, "GPUs, or MIG devices of one profile"),
        ([of_mig(1), exactly(1, "b")], {}, "GPUs, or MIG devices of one profile"),
        ([of_mig(1, allocationMode="All")], {}, "All is not supported"),
        ([of_mig(1, adminAccess=True)], {}, "adminAccess"),
        ([of_mig(2)], {"constraints": [{"matchAttribute": "gpu.nvidia.com/parentUUID"}]}, "not supported for mig."),
        (
            [{"name": "gpus", "firstAvailable": [{"name": "a", **of_mig(1)["exactly"]}]}],
            {},
            "request one profile by `exactly`",
        ),
    ],
)
def test_anything_but_a_count_of_one_profile_is_refused(requests: list[Json], devices: Json, reason: str) -> None:
    """With the reason, and never in part."""
    assert is_ours(read_claim(claim("a", *requests)))
    with pytest.raises(RequestError, match="ResourceClaim ml/a: ") as refused:
        demand(*requests, **devices)
    assert reason in str(refused.value)


def test_without_its_class_no_mig_device_is_allocated() -> None:
    """The chart of an earlier version has only the other class, whose claims go on."""
    classes = {OUR_CLASS: CLASSES[OUR_CLASS]}
    assert read_demands([read_claim(claim("a", exactly(1)))], classes, SELECTORS)
    with pytest.raises(RequestError, match=r"DeviceClass mig\.gputopo\.dev: does not exist, or cannot be read"):
        read_demands([read_claim(claim("a", of_mig(1)))], classes, SELECTORS)


@dataclass
class Situation:
    """An allocation of two small devices that is about to be written."""

    slices: list[Json] = field(default_factory=lambda: partitioned(NODE, ["GPU-a", "GPU-b"]))
    taken: dict[DeviceId, str] = field(default_factory=dict)
    claim: Json = field(default_factory=lambda: claim("a", of_mig(2)))
    uuids: list[str] = field(default_factory=list)
    status: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Allocate the first two."""
        read, (item,) = inventory(*self.slices), [read_claim(self.claim)]
        (wanted,) = read_demands([item], CLASSES, SELECTORS)
        devices = [*read.allocatable(SMALL)][:2]
        self.uuids = [device.uuid for device in devices]
        (made,) = allocate(wanted, [item], CLASSES[MIG_CLASS], NODE, devices, "2026-11-29T12:00:00Z")
        self.status = deepcopy(dict(made.status))

    def take(self, device: str) -> None:
        self.taken[DeviceId(DRIVER, NODE, device)] = "ml/other"

    def check(self) -> None:
        slices = [read_slice(item) for item in self.slices]
        validate(self.status, read_claim(self.claim), CLASSES, NODE, slices, self.taken, self.uuids, SELECTORS)


def _with(device: str) -> Callable[[Situation], None]:
    return lambda made: made.status["devices"]["results"][0].update({"device": device})


def _named(device: str) -> Callable[[Situation], None]:
    """Let ledger and allocation agree on a device."""

    def change(made: Situation) -> None:
        read = inventory(*made.slices)
        every = {item.id.name: uuid for uuid, item in {**read.gpus, **read.mig_devices}.items()}
        made.status["devices"]["results"][0]["device"] = device
        made.uuids[0] = every[device]

    return change


MUTANTS: Final[dict[str, tuple[Callable[[Situation], object], str]]] = {
    "a device that is not published": (_with("gpu-0-mig-1g5gb-19-9"), "no MIG device gpu-0-mig-1g5gb-19-9"),
    "a whole GPU": (_named("gpu-1"), "no MIG device gpu-1"),
    "another profile": (_named("gpu-1-mig-2g10gb-14-0"), "does not match the selectors"),
    "a device that the ledger does not name": (_with("gpu-1-mig-1g5gb-19-0"), "the ledger names"),
    "a device that is taken": (lambda made: made.take("gpu-0-mig-1g5gb-19-0"), "ResourceClaim ml/other holds"),
    "a device whose GPU is taken": (lambda made: made.take("gpu-0"), "of which a device is a part"),
    "a device that overlaps": (lambda made: made.take("gpu-0-mig-2g10gb-14-0"), "gpu-0-counter-set/memory-slice-"),
    "a device that says nothing of what it takes": (
        lambda made: made.slices[1]["spec"]["devices"][1].update({"consumesCounters": []}),
        "says neither what it is nor what it takes",
    ),
    "a claim of the other class": (
        lambda made: made.claim["spec"]["devices"]["requests"][0]["exactly"].update({"deviceClassName": OUR_CLASS}),
        "no whole GPU",
    ),
}


def test_an_allocation_without_a_fault_is_accepted() -> None:
    """Also beside a device of another place, and on a GPU that an administrator has cut up."""
    made = Situation()
    made.take("gpu-0-mig-3g20gb-9-4")
    made.check()
    Situation(slices=[resource_slice(NODE, [static_mig(0, "GPU-a", start) for start in range(3)])]).check()


@pytest.mark.parametrize("name", MUTANTS)
def test_an_allocation_with_one_fault_is_refused(name: str) -> None:
    """The reason names it."""
    made, (break_it, reason) = Situation(), MUTANTS[name]
    break_it(made)
    with pytest.raises(InvalidAllocation) as refused:
        made.check()
    assert reason in str(refused.value)


def test_a_mig_device_of_another_driver_is_none() -> None:
    """Nor is one of which nobody tells the GPU."""
    orphan = mig(0, "GPU-a", 0)
    del orphan["attributes"]["parentUUID"]
    assert not inventory(resource_slice(NODE, [orphan])).parts.parts
    assert not inventory(resource_slice(NODE, [static_mig(0, "GPU-a", 0)], driver="x.example.com")).parts.parts
