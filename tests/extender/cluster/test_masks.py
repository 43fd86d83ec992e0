"""Masks of what devices exclude: the same as by name, and as many steps as there are devices and holders."""

from __future__ import annotations

from itertools import combinations

import pytest

from extender.cluster.masks import ExclusionMasks
from topology.node.silicon import Silicon

SLICES = {"MIG-0a": "GPU-0", "MIG-0b": "GPU-0", "MIG-1a": "GPU-1"}
GONE = {"MIG-old": "GPU-1", "MIG-stranger": "GPU-9"}
OVERLAPS = {"MIG-0a": frozenset({"MIG-0b"}), "MIG-0b": frozenset({"MIG-0a"})}
DEVICES = ("GPU-0", "GPU-1", "GPU-2", *SLICES)


@pytest.mark.parametrize("overlaps", [{}, OVERLAPS], ids=["made before", "made on demand"])
@pytest.mark.parametrize("is_partial", [False, True])
def test_masks_say_what_names_do(overlaps: dict[str, frozenset[str]], is_partial: bool) -> None:
    """For each device, and each pair of them, published or not."""
    silicon = Silicon(SLICES, GONE, overlaps, is_partial)
    masks = ExclusionMasks(DEVICES, silicon)
    every = (*DEVICES, *GONE, "MIG-nobody-knows", "GPU-9")
    for held in (*((device,) for device in every), *combinations(every, 2)):
        excluded = silicon.excluded_by(held)
        assert masks.excluded(held) == sum(1 << i for i, device in enumerate(DEVICES) if device in excluded)
        assert masks.across(held) == sum(1 << i for i, device in enumerate(DEVICES) if excluded.across(device))
