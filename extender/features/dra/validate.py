"""Checks an allocation against all that it has to agree with, just before it is written: the API server checks almost nothing.

It reads claim and slices by itself, so that it does not repeat faults of the code that allocates. Only configuration, tolerations
and node selector come from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from extender.cluster.objects.constraints import tolerates
from extender.cluster.objects.devices import DRIVER, Device, DeviceTaint, ResourceClaim, ResourceSlice
from extender.cluster.objects.kinds import Toleration
from extender.features.dra.allocation import as_written, configuration, node_selector
from extender.features.dra.claim_spec import (
    MATCHES_NOTHING,
    MAX_DEVICES,
    MIG_CLASS,
    OUR_CLASSES,
    DeviceClass,
    Exactly,
    FirstAvailable,
    RefusedField,
)
from extender.features.dra.eligibility import matches_all, value_of
from extender.features.dra.inventory import (
    DeviceId,
    PublishedDevice,
    capacity,
    consumption,
    id_of,
    invalid,
    newest_generation,
    uuid_of,
)
from extender.features.dra.requests import read_devices
from extender.features.dra.selectors import SelectorFailed, Selectors, UnreadableSelector

_ALLOCATION = {"devices", "nodeSelector", "allocationTimestamp"}
_RESULT = {"request", "driver", "pool", "device", "tolerations"}


class InvalidAllocation(Exception):
    """An allocation that must not be written; says what is wrong."""


def validate(
    allocation: Mapping[str, Any],
    claim: ResourceClaim,
    classes: Mapping[str, DeviceClass],
    node: str,
    slices: Iterable[ResourceSlice],
    taken: Mapping[DeviceId, str],
    uuids: Sequence[str],
    selectors: Selectors,
) -> None:
    """Check `status.allocation` as it is about to be written; raises `InvalidAllocation`.

    Args:
        allocation: As JSON.
        claim: The newest version of the claim, without an allocation.
        classes: Ours, by name.
        node: Where the pod goes.
        slices: All slices of the node's pools.
        taken: Device → the claim that holds it or is about to, without this claim.
        uuids: The GPUs that the ledger names for this claim.
        selectors: Evaluates expressions.

    """
    try:
        problem = next(_problems(allocation, claim, classes, node, [*slices], taken, uuids, selectors), None)
    except (RefusedField, SelectorFailed, UnreadableSelector, KeyError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        raise InvalidAllocation(f"ResourceClaim {claim.name}: {problem}")


def _problems(
    allocation: Mapping[str, Any],
    claim: ResourceClaim,
    classes: Mapping[str, DeviceClass],
    node: str,
    slices: Sequence[ResourceSlice],
    taken: Mapping[DeviceId, str],
    uuids: Sequence[str],
    selectors: Selectors,
) -> Iterator[str]:
    if claim.status.allocation is not None:
        yield "it has an allocation"
    if claim.metadata.deletion_timestamp is not None:
        yield "it is being deleted"
    results = allocation["devices"]["results"]
    yield from _shape(allocation, results, node)
    ways = _ways(claim, results)
    yield from _counts(results, ways)
    names = {way.device_class_name for way in ways.values()}
    if len(names) != 1 or not names <= OUR_CLASSES:
        yield f"it requests devices of {', '.join(sorted(names))}"
        return
    (name,) = names
    device_class = classes[name]
    gpus = [_published(result, node, slices, is_mig=name == MIG_CLASS) for result in results]
    if sorted(gpu.uuid for gpu in gpus) != sorted(uuids):
        yield f"devices are {', '.join(gpu.uuid for gpu in gpus)}, the ledger names {', '.join(uuids)}"
    yield from _availability(gpus, slices, taken)
    of_class = [selector.cel.expression for selector in device_class.spec.selectors or ()]
    if MATCHES_NOTHING not in of_class:
        yield "kube-scheduler allocates devices of our class, too"
    for result, gpu in zip(results, gpus, strict=True):
        yield from _suitability(result, gpu, ways[result["request"]], of_class, selectors, claim.metadata.namespace)
    yield from _constraints(claim, results, gpus)
    expected = configuration(read_devices(claim), device_class, list(ways))
    if allocation["devices"].get("config", []) != expected:
        yield "its configuration is not that of class and claim"


def _shape(allocation: Mapping[str, Any], results: Sequence[Mapping[str, Any]], node: str) -> Iterator[str]:
    if allocation.keys() != _ALLOCATION or allocation["devices"].keys() - {"results", "config"}:
        yield "fields are missing, or not known"
    if not allocation["allocationTimestamp"]:
        yield "no timestamp, which kube-scheduler would add in vain"
    if allocation["nodeSelector"] != node_selector(node):
        yield f"its node selector is not for {node}"
    if not 0 < len(results) <= MAX_DEVICES:
        yield f"{len(results)} devices"
    if any(result.keys() - _RESULT for result in results):
        yield "a result has fields that are not known"


def _ways(claim: ResourceClaim, results: Sequence[Mapping[str, Any]]) -> dict[str, Exactly | FirstAvailable]:
    """Return how each request of the claim is met, by its name in results; raises `ValueError` for one that is not."""
    names, ways = {result["request"] for result in results}, dict[str, Exactly | FirstAvailable]()
    for request in read_devices(claim).requests or ():
        possible: dict[str, Exactly | FirstAvailable] = {
            f"{request.name}/{way.name}": way for way in request.first_available or ()
        }
        if request.exactly is not None:
            possible[request.name] = request.exactly
        chosen = possible.keys() & names
        if len(chosen) != 1:
            raise ValueError(f"request {request.name} is met {len(chosen)} times")
        ways |= {name: possible[name] for name in chosen}
    return ways


def _counts(results: Sequence[Mapping[str, Any]], ways: Mapping[str, Exactly | FirstAvailable]) -> Iterator[str]:
    counts = Counter(result["request"] for result in results)
    if counts.keys() != ways.keys():
        yield f"there is no request {', '.join(sorted(counts.keys() - ways.keys()))}"
    for name, way in ways.items():
        if counts[name] != (way.count or 1):
            yield f"{counts[name]} devices for request {name}, which is for {way.count or 1}"
    devices = Counter((result["driver"], result["pool"], result["device"]) for result in results)
    if devices and max(devices.values()) > 1:
        yield "a device twice"


def _published(
    result: Mapping[str, Any], node: str, slices: Sequence[ResourceSlice], *, is_mig: bool
) -> PublishedDevice:
    """Return the device of a result, as the newest generation of its pool has it; raises `ValueError` if there is none."""
    pool = [item for item in slices if (item.spec.driver, item.spec.pool.name) == (result["driver"], result["pool"])]
    if result["driver"] != DRIVER or not pool:
        raise ValueError(f"no pool {result['driver']}/{result['pool']} on {node}")
    newest = newest_generation(pool)
    reason = invalid(newest)
    if reason is not None:
        raise ValueError(f"pool {result['pool']}: {reason}")
    for item in newest:
        for device in item.spec.devices or ():
            is_such = device.text("type") == "mig" if is_mig else device.is_whole
            if device.name == result["device"] and item.spec.node_name == node and is_such:
                return PublishedDevice(id_of(item, device), uuid_of(device) or "", device)
    what = f"{'MIG device' if is_mig else 'whole GPU'} {result['device']}"
    raise ValueError(f"no {what} on {node} in the newest generation of pool {result['pool']}")


def _availability(
    gpus: Sequence[PublishedDevice], slices: Sequence[ResourceSlice], taken: Mapping[DeviceId, str]
) -> Iterator[str]:
    for gpu in gpus:
        if gpu.device.binding_conditions or gpu.device.allow_multiple_allocations:
            yield f"{gpu.id} is no device that is allocated whole and at once"
        if gpu.device.text("type") == "mig" and not (gpu.device.text("uuid") or gpu.device.consumes_counters):
            yield f"{gpu.id} says neither what it is nor what it takes of its GPU"
    uuids, of_gpus = {gpu.uuid for gpu in gpus}, {gpu.device.gpu for gpu in gpus}
    for pool in {gpu.id.pool for gpu in gpus}:
        newest = newest_generation(
            [item for item in slices if item.spec.pool.name == pool and item.spec.driver == DRIVER]
        )
        published = [(id_of(item, device), device) for item in newest for device in item.spec.devices or ()]
        held = [(key, device) for key, device in published if key in taken]
        for key, device in held:
            if device.gpu in uuids:
                yield f"ResourceClaim {taken[key]} holds {key}, which is {device.gpu} or a part of it"
            elif device.is_whole and device.gpu in of_gpus:
                yield f"ResourceClaim {taken[key]} holds {key}, of which a device is a part"
            elif uuid_of(device) in uuids:
                yield f"ResourceClaim {taken[key]} holds {key}"
        limits = capacity(newest)
        used = consumption([*(device for _, device in held), *(gpu.device for gpu in gpus if gpu.id.pool == pool)])
        short = [counter for counter, amount in used.items() if amount > limits.get(counter, 0)]
        if short:
            yield f"counter {'/'.join(min(short))} does not suffice"


def _suitability(
    result: Mapping[str, Any],
    gpu: PublishedDevice,
    way: Exactly | FirstAvailable,
    of_class: Sequence[str],
    selectors: Selectors,
    namespace: str,
) -> Iterator[str]:
    if result.get("tolerations", []) != as_written(way.tolerations or ()):
        yield f"the tolerations of {gpu.id} are not those of request {result['request']}"
    taint = _intolerable(gpu.device, way.tolerations or ())
    if taint is not None:
        yield f"{gpu.id} has the taint {taint}"
    of_request = [selector.cel.expression for selector in way.selectors or ()]
    expressions = [expression for expression in of_class if expression != MATCHES_NOTHING] + of_request
    if not matches_all(expressions, gpu, selectors, namespace):
        yield f"{gpu.id} does not match the selectors of request {result['request']}"


def _intolerable(device: Device, tolerations: Iterable[Toleration]) -> DeviceTaint | None:
    """Return the first taint that keeps pods with these tolerations away."""
    taints = (taint for taint in device.taints or () if taint.keeps_pods_away)
    return next((taint for taint in taints if not any(tolerates(one, taint) for one in tolerations)), None)


def _constraints(
    claim: ResourceClaim, results: Sequence[Mapping[str, Any]], gpus: Sequence[PublishedDevice]
) -> Iterator[str]:
    for constraint in read_devices(claim).constraints or ():
        attribute = constraint.match_attribute
        if attribute is None:
            yield "a constraint that is not known"
            continue
        names = constraint.requests or ()
        concerned = [
            value_of(gpu, attribute)
            for result, gpu in zip(results, gpus, strict=True)
            if not names or result["request"] in names or result["request"].partition("/")[0] in names
        ]
        if None in concerned or len(set(concerned)) > 1:
            yield f"devices differ in {attribute}"
