"""What Kubernetes 1.37.2's own code answers: `reference.json` has it for `cases.py`, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from extender.cluster.objects.devices import DRIVER, Device, ResourceClaim
from extender.features.dra.allocation import ClaimAllocation, allocate
from extender.features.dra.claim_spec import OUR_CLASS, DeviceClass
from extender.features.dra.eligibility import suitable_sets
from extender.features.dra.inventory import DeviceId, id_of, read_inventory
from extender.features.dra.requests import read_demands
from extender.features.dra.selectors import SelectorFailed, Selectors, UnreadableSelector
from extender.features.dra.validate import validate
from tests.dra import Json, read_claim, read_slice
from tests.extender.features.dra.cases import ALLOCATIONS, DEVICES, EXPRESSIONS, NODE, allocation
from topology.effort import finish

REFERENCE: Final = msgspec.json.decode(Path(__file__).with_name("reference.json").read_bytes())
TIMESTAMP: Final = "2026-11-29T12:00:00Z"
UNREADABLE: Final = frozenset(
    {
        'device.attributes["gpu.nvidia.com"].?index.orValue(7) == 7',
        '"a-b".split("-") == ["a", "b"]',
        'ip("10.0.0.1").family() == 4',
    }
)
"""Kubernetes evaluates these; here they are refused."""


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=[f"{at:02}" for at in range(len(EXPRESSIONS))])
def test_selectors_are_evaluated_as_kubernetes_does(number: int) -> None:
    """For each device, true, false, or an error."""
    expression, selectors = EXPRESSIONS[number], Selectors()
    for at, written in enumerate(DEVICES):
        reference = REFERENCE["selectors"][number * len(DEVICES) + at]
        device = msgspec.convert(written, Device)
        try:
            answer = str(selectors.matches(expression, DRIVER, device, "ml")).lower()
        except UnreadableSelector:
            answer = "unreadable"
        except SelectorFailed:
            answer = "error"
        if expression in UNREADABLE:
            assert answer == "unreadable"
        elif reference == "unreadable":
            assert answer in ("unreadable", "error"), expression
        else:
            assert answer == reference, f"{expression} for {device.name}"


def test_every_case_has_an_answer_of_kubernetes() -> None:
    """A case that was added needs a new reference."""
    assert len(REFERENCE["selectors"]) == len(EXPRESSIONS) * len(DEVICES)
    assert len(REFERENCE["allocations"]) == len(ALLOCATIONS)


@pytest.mark.parametrize(("number", "name"), [*enumerate(ALLOCATIONS)])
def test_an_allocation_is_what_kube_scheduler_writes(number: int, name: str) -> None:
    """Where GPUs are chosen by first fit, as it does. It has no room where we have none."""
    case, reference = allocation(name), REFERENCE["allocations"][number]
    ours = first_fit(case)
    written = [dict(made.status) for made in ours]
    for status in written:
        assert status.pop("allocationTimestamp") == TIMESTAMP
    assert written == (reference or [])
    if reference is None:
        assert name in ("taints", "an incomplete pool") or not ours


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_the_validator_accepts_what_is_allocated(name: str) -> None:
    """It finds no fault with what kube-scheduler would write, too."""
    case, claims, selectors = allocation(name), read_claims(allocation(name)), Selectors()
    for claim, allocated in zip(claims, first_fit(case), strict=False):
        uuids = [gpu.uuid for _, gpu in allocated.gpus]
        classes = {OUR_CLASS: read_class(case)}
        validate(allocated.status, claim, classes, NODE, read_slices(case), taken(case), uuids, selectors)


def first_fit(case: Json) -> tuple[ClaimAllocation, ...]:
    """Allocate the claims of a case from the first GPUs that fit; with tolerations also from those with taints."""
    claims, selectors = read_claims(case), Selectors()
    inventory, held = read_inventory(NODE, read_slices(case)), held_gpus(case)
    for demand in read_demands(claims, {OUR_CLASS: read_class(case)}, selectors):
        tolerates = demand.requests[0].tolerations
        free = [gpu for gpu in inventory.allocatable() if gpu.uuid not in held and (tolerates or not gpu.device.taint)]
        for uuids in finish(suitable_sets(demand, inventory, selectors, "ml")):
            gpus = [gpu for gpu in free if gpu.uuid in uuids]
            if len(gpus) >= demand.gpus:
                return allocate(demand, claims, read_class(case), NODE, gpus[: demand.gpus], TIMESTAMP)
    return ()


def held_gpus(case: Json) -> set[str | None]:
    """Return the GPUs of which others hold all or a part."""
    held = taken(case)
    devices = ((id_of(item, device), device) for item in read_slices(case) for device in item.spec.devices or ())
    return {device.gpu for key, device in devices if key in held}


def read_claims(case: Json) -> list[ResourceClaim]:
    """Read the claims of a case."""
    return [read_claim(claim) for claim in case["claims"]]


def read_class(case: Json) -> DeviceClass:
    """Read the class of a case."""
    return msgspec.convert(case["class"], DeviceClass)


def read_slices(case: Json) -> list[Any]:
    """Read the slices of a case."""
    return [read_slice(item) for item in case["slices"]]


def taken(case: Json) -> dict[DeviceId, str]:
    """Read what others hold."""
    return {DeviceId(held["driver"], held["pool"], held["device"]): "ml/other" for held in case["taken"]}
