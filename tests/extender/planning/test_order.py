"""Units are served by priority, then the namespace that holds least for its weight, then age."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.planning.order import FairOrder
from extender.planning.units import PendingPod, Unit
from tests.extender.builders import pod
from topology.request.domains import Location
from topology.request.gpu_request import GpuRequest


def unit(key: str, namespace: str, *, gpus: int = 1, priority: int = 0, since: float = 0.0) -> Unit:
    return Unit(key, namespace, priority, since, (PendingPod(pod(key, gpus), GpuRequest.plain(gpus)),))


def served(
    units: Iterable[Unit], held: Mapping[str, int] | None = None, weights: Mapping[str, float] | None = None
) -> list[str]:
    """Return the order in which units are served that all get a place."""
    order = FairOrder(units, held or {}, weights or {})
    keys = []
    for item in order:
        order.charge(item)
        keys.append(item.key)
    return keys


def test_higher_priority_is_served_first() -> None:
    """Whatever its namespace holds, and however young it is."""
    units = [unit("old", "idle"), unit("urgent", "busy", priority=5, since=9.0)]
    assert served(units, held={"busy": 100}) == ["urgent", "old"]


def test_the_namespace_that_holds_least_is_served_first() -> None:
    """Even where a pod of another one has waited longer."""
    assert served([unit("a", "busy"), unit("b", "idle", since=9.0)], held={"busy": 1}) == ["b", "a"]


def test_of_equal_use_the_oldest_is_served_first() -> None:
    """Within a namespace, and between two."""
    units = [unit("young", "x", since=3.0), unit("old", "x", since=1.0), unit("middle", "y", since=2.0)]
    assert served(units) == ["old", "middle", "young"]


def test_the_rest_of_a_gang_comes_first() -> None:
    """Whatever its priority: the others hold GPUs, and wait for it."""
    rest = replace(unit("rest", "busy", since=9.0), placed=(Location(),), is_begun=True)
    assert served([unit("urgent", "idle", priority=5), rest], held={"busy": 100}) == ["rest", "urgent"]


def test_use_counts_by_weight() -> None:
    """A namespace with weight 2 holds twice as much before others are served."""
    units = [unit(f"{name}{number}", name, since=number) for name in "ab" for number in range(4)]
    assert served(units, weights={"a": 2.0}) == ["a0", "b0", "a1", "b1", "a2", "a3", "b2", "b3"]


def test_what_gets_a_place_counts_at_once_and_nothing_else_does() -> None:
    """A large gang makes its namespace wait; one that finds no room does not."""
    units = [
        unit("gang", "a", gpus=8),
        unit("a1", "a", since=1.0),
        unit("b1", "b", since=2.0),
        unit("b2", "b", since=3.0),
    ]
    assert served(units) == ["gang", "b1", "b2", "a1"]
    assert [item.key for item in FairOrder(units, {}, {})] == ["gang", "a1", "b1", "b2"]


def test_a_tenant_with_thousands_of_pods_delays_nobody() -> None:
    """Its pods came first, and each of the other's is served after one of them."""
    units = [unit(f"e{number}", "evil") for number in range(5000)]
    units += [unit(f"v{number}", "victim", since=9.0) for number in range(5)]
    order = served(units)
    assert [order.index(f"v{number}") for number in range(5)] == [1, 3, 5, 7, 9]


units_of_any_kind = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 5), st.sampled_from((1, 2, 8)), st.booleans()),
    max_size=12,
)


@pytest.mark.slow
@given(units_of_any_kind, st.dictionaries(st.sampled_from("abc"), st.integers(0, 20)))
def test_each_unit_is_served_once_in_an_order_that_can_be_checked(
    drawn: list[tuple[str, int, int, int, bool]], held: dict[str, int]
) -> None:
    """No unit of lower priority comes before one of higher priority, and none of a namespace before an older one."""
    fits = {f"u{number}": row[4] for number, row in enumerate(drawn)}
    units = [
        unit(f"u{number}", namespace, gpus=gpus, priority=priority, since=since)
        for number, (namespace, priority, since, gpus, _) in enumerate(drawn)
    ]
    order, in_order, use = FairOrder(units, held, {}), list[Unit](), dict(held)
    for item in order:
        rivals = [other for other in units if other.priority == item.priority and other not in in_order]
        assert use.get(item.namespace, 0) == min(use.get(rival.namespace, 0) for rival in rivals)
        in_order.append(item)
        if fits[item.key]:
            order.charge(item)
            use[item.namespace] = use.get(item.namespace, 0) + item.gpus
    assert sorted(item.key for item in in_order) == sorted(fits)
    assert [item.priority for item in in_order] == sorted((item.priority for item in in_order), reverse=True)
    for namespace in "abc":
        ages = [(-item.priority, item.since) for item in in_order if item.namespace == namespace]
        assert ages == sorted(ages)


@pytest.mark.parametrize("units", [[], [unit("only", "a")]], ids=["none", "one"])
def test_short_queues(units: list[Unit]) -> None:
    """Nothing, and one unit."""
    assert served(units) == [item.key for item in units]
