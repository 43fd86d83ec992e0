"""What each device excludes: exactly the silicon that it is of, and everything where nobody knows which that is."""

from __future__ import annotations

from itertools import product

import pytest

from topology.node.silicon import Silicon

SILICON = Silicon(
    {"MIG-7a": "GPU-7", "MIG-7b": "GPU-7", "MIG-6a": "GPU-6"},
    {"MIG-7old": "GPU-7", "MIG-7older": "GPU-7", "MIG-5old": "GPU-5"},
)
DEVICES = ("GPU-5", "GPU-6", "GPU-7", "MIG-6a", "MIG-7a", "MIG-7b")
EXCLUDED = {
    "GPU-7": {"GPU-7", "MIG-7a", "MIG-7b"},
    "MIG-7a": {"GPU-7", "MIG-7a"},
    "MIG-7old": {"GPU-7", "MIG-7a", "MIG-7b"},
    "MIG-5old": {"GPU-5"},
    "MIG-of-nobody-knows": set(DEVICES),
    "GPU-of-another-machine": set(),
}


@pytest.mark.parametrize("held", EXCLUDED)
def test_a_device_excludes_its_silicon(held: str) -> None:
    """A GPU its slices and a slice its GPU; one of an earlier cut both; one of an unknown GPU all."""
    excluded = SILICON.excluded_by([held])
    assert {device for device in DEVICES if device in excluded} == EXCLUDED[held]


def test_several_devices_exclude_what_each_of_them_does() -> None:
    """Every pair of them."""
    for one, other in product(EXCLUDED, repeat=2):
        excluded = SILICON.excluded_by([one, other])
        assert {device for device in DEVICES if device in excluded} == EXCLUDED[one] | EXCLUDED[other]


def test_exclusion_is_mutual() -> None:
    """Also with devices that nobody publishes."""
    devices = {*DEVICES, *EXCLUDED, "MIG-7older"}
    pairs = {(one, other) for one in devices for other in devices if other in SILICON.excluded_by([one])}
    assert pairs == {(other, one) for one, other in pairs}
    assert ("MIG-7old", "MIG-7older") not in pairs


def test_only_devices_of_several_kinds_cross() -> None:
    """Slices of one cut do not, nor two that are gone; with one of an unknown GPU any may."""
    assert SILICON.crossing(["GPU-5", "MIG-7a", "MIG-7b"]) == ()
    assert SILICON.crossing(["MIG-7old", "MIG-7older", "MIG-6a"]) == ()
    assert SILICON.crossing(["GPU-5", "MIG-7a", "MIG-7old"]) == ("MIG-7a", "MIG-7old")
    assert SILICON.crossing(["GPU-5", "MIG-x"]) == ("GPU-5", "MIG-x")
