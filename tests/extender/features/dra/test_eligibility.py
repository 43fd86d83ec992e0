"""Which free GPUs of a node a pod may have."""

from __future__ import annotations

from typing import Final

import msgspec

from extender.features.dra.claim_spec import DeviceToleration
from extender.features.dra.eligibility import NodeChoices, choices
from extender.features.dra.inventory import read_inventory
from extender.features.dra.requests import DemandOption, DeviceRequest
from extender.features.dra.selectors import Selectors
from tests.dra import Json, gpu, read_slice, resource_slice
from tests.extender.features.dra.cases import GPU, NODE, TAINT, TOLERATION


def chosen(
    devices: list[Json],
    count: int = 1,
    *selectors: str,
    match: tuple[str, ...] = (),
    tolerations: tuple[Json, ...] = (),
) -> NodeChoices:
    read = tuple(msgspec.convert(toleration, DeviceToleration) for toleration in tolerations)
    option = DemandOption((DeviceRequest("ml/a", "uid", "gpus", count, selectors, read),), match)
    return choices(option, read_inventory(NODE, [read_slice(resource_slice(NODE, devices))], {}), Selectors())


def on_island(number: int, island: int | str | None) -> Json:
    device = gpu(number, f"GPU-{number}")
    value = {"string": island} if isinstance(island, str) else {"int": island}
    return device | {"attributes": device["attributes"] | ({} if island is None else {"island": value})}


ISLAND: Final = ("gpu.nvidia.com/island",)


def test_all_free_gpus_are_one_set_where_nothing_is_said() -> None:
    """The planner chooses among them."""
    answer = chosen([gpu(0, "GPU-0"), gpu(1, "GPU-1")], 2)
    assert answer.sets == (frozenset({"GPU-0", "GPU-1"}),)
    assert not chosen([gpu(0, "GPU-0")], 2).sets


def test_gpus_that_selectors_do_not_match_are_left_out_with_a_reason() -> None:
    """Every selector has to match."""
    answer = chosen([gpu(0, "GPU-0"), gpu(1, "GPU-1")], 1, "true", f'{GPU}.uuid == "GPU-1"')
    assert answer.sets == (frozenset({"GPU-1"}),)
    assert answer.reasons == {"GPU-0": "selectors do not match"}


def test_a_selector_that_fails_for_one_gpu_leaves_no_room_on_its_node() -> None:
    """kube-scheduler would give up on the claim."""
    answer = chosen([on_island(0, 1), gpu(1, "GPU-1")], 1, f"{GPU}.island == 1")
    assert not answer.sets
    assert answer.trouble is not None
    assert answer.trouble.startswith("device gpu-1: ")


def test_gpus_with_taints_are_for_pods_that_tolerate_them() -> None:
    """Taints without effect keep nobody away."""
    devices = [gpu(0, "GPU-0", TAINT), gpu(1, "GPU-1", {"key": "x", "effect": "None"})]
    assert chosen(devices).sets == (frozenset({"GPU-1"}),)
    assert chosen(devices).reasons["GPU-0"] == "the driver's taint gpu.nvidia.com/xid=48:NoExecute"
    assert chosen(devices, tolerations=(TOLERATION,)).sets == (frozenset({"GPU-0", "GPU-1"}),)
    for other in ({"key": "y"}, {"effect": "NoSchedule"}, {"operator": "Equal", "value": "79"}):
        assert chosen(devices, tolerations=(TOLERATION | other,)).sets == (frozenset({"GPU-1"}),)


def test_gpus_of_one_value_are_a_set_of_their_own() -> None:
    """Sets that are too small are left out, and the largest comes first. A value of another type differs."""
    devices = [on_island(number, island) for number, island in enumerate((1, 2, 1, 2, 2, 3, "3", None))]
    answer = chosen(devices, 2, match=ISLAND)
    assert answer.sets == (frozenset({"GPU-1", "GPU-3", "GPU-4"}), frozenset({"GPU-0", "GPU-2"}))
    assert "lacks an attribute" in answer.reasons["GPU-7"]
