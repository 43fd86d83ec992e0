"""The validator accepts every allocation that is made, and none in which anything is wrong."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.allocation import allocate
from extender.features.dra.claim_spec import OUR_CLASS, DeviceClass
from extender.features.dra.eligibility import suitable_sets
from extender.features.dra.inventory import DeviceId, read_inventory
from extender.features.dra.requests import read_demands
from extender.features.dra.selectors import Selectors
from extender.features.dra.validate import InvalidAllocation, validate
from tests.dra import Json, gpu, mig, read_claim, read_slice, resource_slice
from tests.extender.features.dra.cases import GPU, NODE, TAINT, TOLERATION, claim, device_class, exactly, opaque
from topology.effort import finish

SELECTORS: Final = Selectors()
TIMESTAMP: Final = "2026-11-29T12:00:00Z"
OTHER: Final = "ml/other"
GPUS: Final = 8


@dataclass
class Situation:
    """An allocation that is about to be written, and all that it has to agree with."""

    claim: Json
    allocation: Json
    uuids: list[str]
    slices: list[Json]
    of: Json
    node: str = NODE
    taken: dict[DeviceId, str] = field(default_factory=dict)

    @property
    def results(self) -> list[Json]:
        results: list[Json] = self.allocation["devices"]["results"]
        return results

    def check(self) -> None:
        """Validate it as it stands."""
        slices, of = [read_slice(item) for item in self.slices], msgspec.convert(self.of, DeviceClass)
        classes = {OUR_CLASS: of}
        validate(self.allocation, read_claim(self.claim), classes, self.node, slices, self.taken, self.uuids, SELECTORS)


def situation(
    counts: list[int], taken: set[int], choose: Callable[[list[str]], list[str]] = sorted
) -> Situation | None:
    """Allocate so many devices for the requests of a claim on a node where some are taken; `None`: there is no room."""
    expression = f"{GPU}.productName.startsWith('NVIDIA')"
    requests = [exactly(count, f"r{at}", expression) for at, count in enumerate(counts)]
    same = [{"matchAttribute": "gpu.nvidia.com/productName"}]
    item = claim("a", *requests, constraints=same, config=[{"requests": ["r0"], **opaque(of="claim")}])
    of, slices = (
        device_class(config=[opaque(of="class")]),
        [resource_slice(NODE, [gpu(at, f"GPU-{at}") for at in range(GPUS)])],
    )
    held = {DeviceId(DRIVER, NODE, f"gpu-{at}"): OTHER for at in taken}
    ours, read = msgspec.convert(of, DeviceClass), read_claim(item)
    (demand,) = read_demands([read], {OUR_CLASS: ours}, SELECTORS)
    inventory = read_inventory(NODE, [read_slice(item) for item in slices])
    (suitable,) = finish(suitable_sets(demand, inventory, SELECTORS, "ml"))
    free = sorted(suitable - {f"GPU-{at}" for at in taken})
    if len(free) < demand.gpus:
        return None
    uuids = choose(free)[: demand.gpus]
    (allocated,) = allocate(demand, [read], ours, NODE, [inventory.gpus[uuid] for uuid in uuids], TIMESTAMP)
    return Situation(item, deepcopy(dict(allocated.status)), uuids, slices, of, taken=held)


def one() -> Situation:
    made = situation([2, 1], {0})
    assert made is not None
    return made


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sets(st.integers(0, GPUS - 1)), st.randoms())
def test_every_allocation_that_is_made_is_accepted(counts: list[int], taken: set[int], random: Any) -> None:
    """There is one where the free devices suffice, whichever of them are chosen."""
    made = situation(counts, taken, lambda uuids: random.sample(uuids, len(uuids)))
    assert (made is None) == (sum(counts) > GPUS - len(taken))
    if made is not None:
        made.check()


def _set(name: str, value: Any) -> Callable[[Situation], None]:
    return lambda made: made.results[0].update({name: value})


def _of_allocation(name: str, value: Any) -> Callable[[Situation], None]:
    return lambda made: made.allocation.update({name: value})


def _device(**changes: Any) -> Callable[[Situation], None]:
    """Change what the driver publishes of the first device that is allocated."""
    return lambda made: made.slices[0]["spec"]["devices"][1].update(changes)


def _tolerated(*taints: Json) -> Callable[[Situation], None]:
    """Let the first request have a toleration, and the first device that is allocated have these taints."""

    def change(made: Situation) -> None:
        made.claim["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [TOLERATION]
        for result in made.results[:2]:
            result["tolerations"] = [TOLERATION]
        _device(taints=[*taints])(made)

    return change


def _attribute(name: str, value: Json) -> Callable[[Situation], None]:
    return lambda made: made.slices[0]["spec"]["devices"][1]["attributes"].update({name: value})


def _newer(made: Situation) -> None:
    made.slices.append(resource_slice(NODE, [gpu(5, "GPU-5")], name="newer", generation=2))


def _incomplete(made: Situation) -> None:
    made.slices[0]["spec"]["pool"]["resourceSliceCount"] = 2


def _part_is_taken(made: Situation) -> None:
    part = mig(1, "GPU-1", 0)
    made.slices[0]["spec"]["devices"].append(part)
    made.taken[DeviceId(DRIVER, NODE, part["name"])] = OTHER


def _counter_is_used_up(made: Situation) -> None:
    consumed = [{"counterSet": "a", "counters": {"b": {"value": "1"}}}]
    made.slices[0]["spec"]["devices"][1]["consumesCounters"] = consumed
    made.slices[0]["spec"]["devices"][0]["consumesCounters"] = consumed
    made.slices[0]["spec"]["sharedCounters"] = [{"name": "a", "counters": {"b": {"value": "1"}}}]


def _class_without_its_selector(made: Situation) -> None:
    made.of["spec"]["selectors"] = []


MUTANTS: Final[dict[str, tuple[Callable[[Situation], object], str]]] = {
    "one device too few": (lambda made: made.results.pop(0), "1 devices for request r0"),
    "one device too many": (
        lambda made: made.results.append({**made.results[0], "device": "gpu-7"}),
        "3 devices for request r0",
    ),
    "a device twice": (_set("device", "gpu-2"), "a device twice"),
    "a request that is not there": (_set("request", "r9"), "no request r9"),
    "too few for one request, too many for another": (_set("request", "r1"), "1 devices for request r0"),
    "no device for one request": (lambda made: made.results.pop(), "request r1 is met 0 times"),
    "a device that does not exist": (_set("device", "gpu-99"), "no whole GPU gpu-99"),
    "a pool that does not exist": (_set("pool", "nowhere"), "no pool"),
    "another driver": (_set("driver", "nic.example.com"), "no pool"),
    "a device that is taken": (_set("device", "gpu-0"), "the ledger names"),
    "taken, as the ledger has it": (
        lambda made: made.taken.update({DeviceId(DRIVER, NODE, "gpu-1"): OTHER}),
        f"ResourceClaim {OTHER} holds",
    ),
    "a device that the ledger does not name": (_set("device", "gpu-7"), "the ledger names"),
    "a device with another UUID": (_attribute("uuid", {"string": "GPU-new"}), "the ledger names"),
    "a MIG device": (_attribute("parentUUID", {"string": "GPU-1"}), "no whole GPU"),
    "a device that is tainted": (_device(taints=[TAINT]), "has the taint gpu.nvidia.com/xid"),
    "a taint that is not the tolerated one": (_tolerated({**TAINT, "key": "y"}), "has the taint y"),
    "a taint of another effect": (_tolerated({**TAINT, "effect": "NoSchedule"}), "has the taint gpu"),
    "a device with conditions": (_device(bindingConditions=["x.org/y"]), "no device that is allocated whole"),
    "a device of which a part is taken": (_part_is_taken, "which is GPU-1 or a part of it"),
    "a counter that is used up": (_counter_is_used_up, "counter a/b does not suffice"),
    "a device of an old generation": (_newer, "in the newest generation"),
    "a pool that is not complete": (_incomplete, "1 of 2 ResourceSlices"),
    "a device that selectors do not match": (
        _attribute("productName", {"string": "Other"}),
        "does not match the selectors",
    ),
    "a selector that fails": (_attribute("productName", {"int": 1}), "SelectorFailed"),
    "devices that differ": (_attribute("productName", {"string": "NVIDIA B200"}), "devices differ in"),
    "another node": (lambda made: setattr(made, "node", "node-2"), "not for node-2"),
    "no node selector": (lambda made: made.allocation.pop("nodeSelector"), "fields are missing"),
    "no timestamp": (_of_allocation("allocationTimestamp", ""), "no timestamp"),
    "a field that is not known": (_of_allocation("more", 1), "fields are missing, or not known"),
    "admin access": (_set("adminAccess", True), "fields that are not known"),
    "tolerations that nobody asked for": (_set("tolerations", [{"operator": "Exists"}]), "tolerations of"),
    "no configuration": (lambda made: made.allocation["devices"].pop("config"), "configuration"),
    "configuration in another order": (lambda made: made.allocation["devices"]["config"].reverse(), "configuration"),
    "a claim with an allocation": (
        lambda made: made.claim.update({"status": {"allocation": made.allocation}}),
        "it has an allocation",
    ),
    "a claim that is being deleted": (
        lambda made: made.claim["metadata"].update({"deletionTimestamp": TIMESTAMP}),
        "is being deleted",
    ),
    "a claim that has changed": (
        lambda made: made.claim["spec"]["devices"]["requests"][0]["exactly"].update({"count": 1}),
        "2 devices for request r0, which is for 1",
    ),
    "a constraint that is not known": (
        lambda made: made.claim["spec"]["devices"]["constraints"].append({"distinctAttribute": "x.org/y"}),
        "a constraint that is not known",
    ),
    "a class of which kube-scheduler has devices, too": (_class_without_its_selector, "kube-scheduler"),
    "nothing": (lambda made: made.allocation.update({"devices": {"results": []}}), "0 devices"),
    "no results": (lambda made: made.allocation.update({"devices": {}}), "KeyError"),
}


def test_what_the_mutants_start_from_is_accepted() -> None:
    """Otherwise they would prove nothing."""
    one().check()


def test_taints_that_a_request_tolerates_keep_nobody_away() -> None:
    """They may have come since the GPUs were planned. Those without effect keep nobody away either."""
    made = one()
    _tolerated(TAINT, {"key": "x", "effect": "None"})(made)
    made.check()


@pytest.mark.parametrize("name", MUTANTS)
def test_an_allocation_with_one_fault_is_refused(name: str) -> None:
    """The reason names it."""
    made, (break_it, reason) = one(), MUTANTS[name]
    break_it(made)
    with pytest.raises(InvalidAllocation, match="ResourceClaim ml/a: ") as refused:
        made.check()
    assert reason in str(refused.value)
