"""Which free GPUs of a node a pod may have, by the selectors, tolerations and constraints of its claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.cluster.objects.devices import Device, DeviceTaint
from extender.features.dra.claim_spec import DeviceToleration
from extender.features.dra.inventory import NodeInventory, PublishedGpu
from extender.features.dra.requests import DemandOption
from extender.features.dra.selectors import SelectorFailed, Selectors


@dataclass(frozen=True, slots=True)
class NodeChoices:
    """What a pod may have of one node."""

    sets: tuple[frozenset[str], ...] = ()
    """UUIDs: all GPUs of the pod come from one of these sets, which do not overlap; the largest first. Empty: no room."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """UUID → why the pod may not have this GPU."""
    trouble: str | None = None
    """Why nothing of this node can be said: a selector failed."""


def choices(option: DemandOption, inventory: NodeInventory, selectors: Selectors) -> NodeChoices:
    """Return the sets of GPUs of which each is large enough; linear in devices and selectors."""
    reasons, by_value = dict(inventory.excluded), dict[tuple[object, ...], set[str]]()
    for gpu in inventory.free():
        try:
            reason = unsuitable(option, gpu, selectors)
        except SelectorFailed as error:
            return NodeChoices(reasons=reasons, trouble=str(error))
        if reason is None:
            values = tuple(value_of(gpu, attribute) for attribute in option.match_attributes)
            by_value.setdefault(values, set()).add(gpu.uuid)
        else:
            reasons[gpu.uuid] = reason
    large = [frozenset(uuids) for uuids in by_value.values() if len(uuids) >= option.gpus]
    return NodeChoices(tuple(sorted(large, key=lambda uuids: (-len(uuids), min(uuids)))), reasons)


def unsuitable(option: DemandOption, gpu: PublishedGpu, selectors: Selectors) -> str | None:
    """Return why a pod may not have a GPU; raises `SelectorFailed`."""
    taint = intolerable(gpu.device, option.tolerations)
    if taint is not None:
        return f"the driver's taint {taint}"
    if any(value_of(gpu, attribute) is None for attribute in option.match_attributes):
        return "it lacks an attribute that all GPUs of the claim have in common"
    if not matches_all(option.selectors, gpu, selectors):
        return "selectors do not match"
    return None


def matches_all(expressions: Sequence[str], gpu: PublishedGpu, selectors: Selectors) -> bool:
    """Whether all expressions match a GPU; raises `SelectorFailed`."""
    return all(selectors.matches(expression, gpu.id.driver, gpu.device) for expression in expressions)


def intolerable(device: Device, tolerations: Iterable[DeviceToleration]) -> DeviceTaint | None:
    """Return the first taint that keeps pods with these tolerations away."""
    tolerations = tuple(tolerations)
    return next(
        (
            taint
            for taint in device.taints or ()
            if taint.keeps_pods_away and not any(_tolerates(toleration, taint) for toleration in tolerations)
        ),
        None,
    )


def value_of(gpu: PublishedGpu, attribute: str) -> tuple[str, object] | None:
    """Return the type and value of a qualified attribute, as `matchAttribute` compares them; `None`: none, or a list.

    The driver's own attributes may be published without their domain.
    """
    attributes = gpu.device.attributes or {}
    domain, _, name = attribute.partition("/")
    published = attributes.get(attribute) or (attributes.get(name) if domain == gpu.id.driver else None)
    if published is None:
        return None
    values = {
        "string": published.string,
        "int": published.integer,
        "bool": published.boolean,
        "version": published.version,
    }
    return next(((kind, value) for kind, value in values.items() if value is not None), None)


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
