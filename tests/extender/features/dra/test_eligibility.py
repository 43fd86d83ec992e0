"""Which GPUs of a node suit a pod."""

from __future__ import annotations

from typing import Final

from extender.features.dra.eligibility import suitable_sets
from extender.features.dra.inventory import read_inventory
from extender.features.dra.requests import DeviceDemand, DeviceRequest
from extender.features.dra.selectors import Selectors
from tests.dra import Json, gpu, read_slice, resource_slice
from tests.extender.features.dra.cases import GPU, NODE
from topology.effort import finish


def suitable(devices: list[Json], *selectors: str, match: tuple[str, ...] = ()) -> set[frozenset[str]]:
    demand = DeviceDemand((DeviceRequest("uid", "gpus", 1, selectors),), match)
    inventory = read_inventory(NODE, [read_slice(resource_slice(NODE, devices))])
    return {*finish(suitable_sets(demand, inventory, Selectors(), "ml"))}


def on_island(number: int, island: int | str | None) -> Json:
    device = gpu(number, f"GPU-{number}")
    value = {"string": island} if isinstance(island, str) else {"int": island}
    return device | {"attributes": device["attributes"] | ({} if island is None else {"island": value})}


ISLAND: Final = ("gpu.nvidia.com/island",)


def test_all_gpus_are_one_set_where_nothing_is_said() -> None:
    """The planner chooses among them."""
    assert suitable([gpu(0, "GPU-0"), gpu(1, "GPU-1")]) == {frozenset({"GPU-0", "GPU-1"})}


def test_gpus_that_selectors_do_not_match_are_left_out() -> None:
    """Every selector has to match."""
    assert suitable([gpu(0, "GPU-0"), gpu(1, "GPU-1")], "true", f'{GPU}.uuid == "GPU-1"') == {frozenset({"GPU-1"})}


def test_a_selector_that_fails_for_one_gpu_leaves_no_room_on_its_node() -> None:
    """kube-scheduler would give up on the claim."""
    assert suitable([on_island(0, 1), gpu(1, "GPU-1")], f"{GPU}.island == 1") == set()


def test_gpus_of_one_value_are_a_set_of_their_own() -> None:
    """A value of another type differs, and a GPU without one is in no set."""
    devices = [on_island(number, island) for number, island in enumerate((1, 2, 1, 2, "1", None))]
    assert suitable(devices, match=ISLAND) == {
        frozenset({"GPU-0", "GPU-2"}),
        frozenset({"GPU-1", "GPU-3"}),
        frozenset({"GPU-4"}),
    }
