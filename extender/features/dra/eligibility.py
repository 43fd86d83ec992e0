"""Which GPUs of a node suit a pod, by the selectors and constraints of its claims. GPUs with taints are free for no pod."""

from __future__ import annotations

from collections.abc import Sequence

from extender.features.dra.inventory import NodeInventory, PublishedDevice
from extender.features.dra.requests import DeviceDemand
from extender.features.dra.selectors import SelectorFailed, Selectors
from topology.effort import Search


def suitable_sets(
    demand: DeviceDemand, inventory: NodeInventory, selectors: Selectors, namespace: str
) -> Search[tuple[frozenset[str], ...]]:
    """Return sets of UUIDs, free or not: all GPUs of the pod come from one of them. Takes a step for each device.

    There is none on a node where a selector fails for a GPU: kube-scheduler would give up on the claim.
    """
    by_value = dict[tuple[object, ...], set[str]]()
    try:
        for gpu in inventory.allocatable(demand.profile):
            values = tuple(value_of(gpu, attribute) for attribute in demand.match_attributes)
            if None not in values and matches_all(demand.selectors, gpu, selectors, namespace):
                by_value.setdefault(values, set()).add(gpu.uuid)
            yield
    except SelectorFailed:
        return ()
    return tuple(map(frozenset, by_value.values()))


def matches_all(expressions: Sequence[str], gpu: PublishedDevice, selectors: Selectors, namespace: str) -> bool:
    """Whether all expressions of a namespace match a GPU; raises `SelectorFailed`."""
    return all(selectors.matches(expression, gpu.id.driver, gpu.device, namespace) for expression in expressions)


def value_of(gpu: PublishedDevice, attribute: str) -> tuple[str, object] | None:
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
