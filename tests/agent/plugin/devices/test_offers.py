"""What a device plugin offers is read off the IDs of its devices, and what it would not give whole is planned for nobody."""

from __future__ import annotations

import pytest

from agent.plugin.devices.offers import MAY_GIVE_MIG, MAY_GIVE_SHARED, NOT_OFFERED, SHARED, SLICED, offers_of, withheld
from topology.node.offers import OfferForm, ResourceOffer

R, RENAMED, SLICES = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
WHOLE = (ResourceOffer(R, OfferForm.WHOLE),)


def closed(devices: dict[str, set[str]], *, mig: str = "", in_parts: str = "") -> dict[str, str]:
    """Return what is withheld of GPU-a and GPU-b, where `mig` has MIG on and of `in_parts` containers hold parts."""
    whole = {"GPU-a", "GPU-b"} - {mig}
    offers = offers_of(devices, whole, {mig: frozenset()} if mig else {})
    return dict(withheld(R, devices, offers, whole, {in_parts}))


@pytest.mark.parametrize(
    ("devices", "offers"),
    [
        ({R: {"GPU-a", "GPU-b"}}, {"GPU-a": WHOLE, "GPU-b": WHOLE}),
        ({R: {"GPU-a"}}, {"GPU-a": WHOLE, "GPU-b": ()}),
        ({R: {"GPU-a", "GPU-b::0", "GPU-b::1"}}, {"GPU-a": WHOLE, "GPU-b": (ResourceOffer(R, OfferForm.SHARED, 2),)}),
        ({RENAMED: {"GPU-a::0"}}, {"GPU-a": (ResourceOffer(RENAMED, OfferForm.SHARED),), "GPU-b": ()}),
        ({R: {"GPU-a", "GPU-b", "GPU-c"}}, {"GPU-a": WHOLE, "GPU-b": WHOLE, "GPU-c": WHOLE}),
        ({R: {"GPU-a", "GPU-b"}, "rdma/hca": {"mlx5_0"}}, {"GPU-a": WHOLE, "GPU-b": WHOLE}),
        (
            {SLICES: {"MIG-c", "MIG-d"}},
            {"GPU-a": (), "GPU-b": (), "GPU-c": (ResourceOffer(SLICES, OfferForm.SLICED, 2),)},
        ),
        (
            {SLICES: {"MIG-c::0", "MIG-c::1"}},
            {"GPU-a": (), "GPU-b": (), "GPU-c": (ResourceOffer(SLICES, OfferForm.SHARED, 2),)},
        ),
    ],
)
def test_each_gpu_is_offered_as_its_devices_say(
    devices: dict[str, set[str]], offers: dict[str, tuple[ResourceOffer, ...]]
) -> None:
    """Slices count with the GPU that they are cut out of, which is GPU-c; what is no GPU is passed over."""
    assert offers_of(devices, {"GPU-a", "GPU-b"}, {"GPU-c": frozenset({"MIG-c", "MIG-d"})}) == offers


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ({R: {"GPU-a", "GPU-b"}}, {}),
        ({R: {"GPU-a"}}, {"GPU-b": NOT_OFFERED}),
        ({R: {"GPU-a", "GPU-b::0", "GPU-b::1"}}, {"GPU-b": SHARED}),
        ({R: {"GPU-a::0"}}, {"GPU-a": SHARED, "GPU-b": NOT_OFFERED}),
        ({RENAMED: {"GPU-a::0", "GPU-b::0"}}, {"GPU-a": SHARED, "GPU-b": SHARED}),
        ({R: {"MIG-a", "GPU-a"}}, {"GPU-b": SLICED}),
        (
            {"example.com/gpu": {"GPU-a", "GPU-b"}, R: {"GPU-a"}},
            {"GPU-b": "offered as example.com/gpu only by the device plugin"},
        ),
    ],
)
def test_what_is_not_offered_whole_is_withheld(devices: dict[str, set[str]], expected: dict[str, str]) -> None:
    """GPU by GPU: a sharing plugin closes those that it shares, and no others."""
    assert closed(devices) == expected


def test_a_plugin_that_offers_gpus_with_mig_on_as_whole_ones_closes_the_others() -> None:
    """It chooses, and a pod could get the one that nobody can use."""
    assert closed({R: {"GPU-a", "GPU-b"}}, mig="GPU-b") == {"GPU-a": MAY_GIVE_MIG}
    assert closed({R: {"GPU-a"}, SLICES: {"MIG-b"}}, mig="GPU-b") == {}


def test_a_plugin_that_shared_gpus_until_now_is_waited_for() -> None:
    """It offers them whole again while pods hold replicas, and would give them out a second time."""
    devices = {R: {"GPU-a", "GPU-b"}}
    assert closed(devices, in_parts="GPU-b") == {"GPU-a": MAY_GIVE_SHARED, "GPU-b": MAY_GIVE_SHARED}
    assert closed(devices) == {}
