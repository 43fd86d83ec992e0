"""Ledger, placement and observation: canonical, and strict about who holds what."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.annotations.records import (
    Claim,
    ClaimUser,
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    Sharer,
    decode_ledger,
    decode_observed,
    decode_placement,
    encode_ledger,
    encode_observed,
    encode_placement,
)
from topology.bandwidth.predict import Bandwidth
from topology.errors import PayloadError
from topology.node.links import Affinity
from topology.node.sharing import Limits

OF_SLICE = Claim("MIG-b", "uid-3", "ml", "train-3", "main", "4711", parent="GPU-b")
CLAIM = Claim("GPU-b", "uid-1", "ml", "train-0", "main", "4711")
OTHER = Claim("GPU-a", "uid-2", "ml", "train-1", "main", "4712")
LEDGER = Ledger(7, (OTHER, CLAIM), "node-uid")
PLACEMENT = PlacementRecord(
    {"main": ("GPU-b", "GPU-a")}, Affinity.NVLINK, Bandwidth(low=200.0, point=231.5, high=240.0), ledger_generation=7
)


def test_ledger_has_the_published_form() -> None:
    """Others read it: version, generation, claims by GPU."""
    assert encode_ledger(Ledger(7, (CLAIM,), "node-uid")) == (
        '{"v":1,"generation":7,"node_uid":"node-uid","claims":[{"gpu":"GPU-b","uid":"uid-1","namespace":"ml",'
        '"name":"train-0","container":"main","resource_version":"4711"}]}'
    )


def test_ledger_survives() -> None:
    """Claims with all their fields."""
    for ledger in (LEDGER, Ledger(7, (OF_SLICE,))):
        assert decode_ledger(encode_ledger(ledger)) == ledger


def test_claim_on_a_slice_names_its_gpu_beside_the_fixed_keys() -> None:
    """Who does not know the key passes over it; without it the GPU is not known."""
    text = encode_ledger(Ledger(7, (OF_SLICE,)))
    assert '"container":"main","resource_version":"4711","parent":"GPU-b"}' in text
    assert decode_ledger(text.replace(',"parent":"GPU-b"', "")).claims == (replace(OF_SLICE, parent=""),)


def test_ledger_records_the_gpus_of_its_node_in_order() -> None:
    """One without a record is not one that records none: an earlier version wrote it."""
    text = encode_ledger(Ledger(1, gpus=("GPU-b", "GPU-a")))
    assert text == '{"v":1,"generation":1,"gpus":["GPU-a","GPU-b"],"claims":[]}'
    assert decode_ledger(text).gpus == ("GPU-a", "GPU-b")
    assert [decode_ledger(encode_ledger(Ledger(1, gpus=gpus))).gpus for gpus in (None, ())] == [None, ()]
    with pytest.raises(PayloadError):
        decode_ledger(text.replace("GPU-b", "GPU b"))


def test_empty_ledger_is_a_ledger() -> None:
    """Missing and empty are different things; this one is empty."""
    assert decode_ledger(encode_ledger(Ledger(0))) == Ledger(0)


def test_ledger_is_the_same_text_in_any_order() -> None:
    """Compare-and-swap compares texts."""
    assert encode_ledger(replace(LEDGER, claims=(CLAIM, OTHER))) == encode_ledger(LEDGER)


def test_one_gpu_in_two_claims_is_refused() -> None:
    """When it is made, and when it is read; the path is that of the second claim as written."""
    with pytest.raises(PayloadError):
        Ledger(1, (CLAIM, replace(OTHER, gpu=CLAIM.gpu)))
    claim = '{"gpu":"GPU-b","uid":"u","namespace":"n","name":"p","container":"c"}'
    with pytest.raises(PayloadError, match="one GPU in two claims") as caught:
        decode_ledger(f'{{"v":1,"generation":1,"claims":[{claim},{claim}]}}')
    assert caught.value.path == "$.claims[1].gpu"


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("gpu", "", "$.claims[0].gpu"),
        ("uid", "a b", "$.claims[0].uid"),
        ("namespace", "Ml", "$.claims[0].namespace"),
        ("name", "train_0", "$.claims[0].name"),
        ("name", "a" * 254, "$.claims[0].name"),
        ("container", "main\n", "$.claims[0].container"),
        ("resource_version", "4711\u202e", "$.claims[0].resource_version"),
    ],
)
def test_claim_that_kubernetes_could_not_have_made_is_not_written(field: str, value: str, path: str) -> None:
    """Names are DNS names, identifiers are visible ASCII."""
    changed: dict[str, Any] = {field: value}
    claim = replace(CLAIM, **changed)
    with pytest.raises(PayloadError) as caught:
        encode_ledger(Ledger(1, (claim,)))
    assert caught.value.path == path


def test_placement_has_the_published_form() -> None:
    """GPUs in ring order for each container."""
    assert encode_placement(PLACEMENT) == (
        '{"v":1,"containers":{"main":["GPU-b","GPU-a"]},"affinity":"nvlink",'
        '"bandwidth_gb_per_s":{"low":200.0,"point":231.5,"high":240.0},"ledger_generation":7}'
    )


def test_placement_survives() -> None:
    """With and without an affinity; ring order is kept."""
    single = PlacementRecord({"main": ("GPU-a",)})
    assert decode_placement(encode_placement(PLACEMENT)) == PLACEMENT
    assert decode_placement(encode_placement(single)) == single


def test_placement_of_a_plan_names_its_node_and_the_last_fence() -> None:
    """Only where it was written before the Binding."""
    planned = replace(PLACEMENT, planned_node="n1", planned_fence="4711")
    assert encode_placement(planned).endswith(',"planned":{"node":"n1","fence":"4711"}}')
    assert decode_placement(encode_placement(planned)) == planned
    unfenced = replace(planned, planned_fence="")
    assert encode_placement(unfenced).endswith(',"planned":{"node":"n1"}}')
    assert decode_placement(encode_placement(unfenced)) == unfenced


def test_placement_names_nics_unless_it_would_be_too_long_with_them() -> None:
    """What a pod gets does not depend on whether its NICs can be named."""
    named = replace(PLACEMENT, nics=("mlx5_4", "mlx5_0"))
    assert encode_placement(named).endswith(',"nics":["mlx5_4","mlx5_0"]}')
    assert decode_placement(encode_placement(named)) == named
    long = replace(PLACEMENT, containers={"c" * 63 + str(i): (f"GPU-{i}",) for i in range(256)}, nics=("n" * 253,) * 60)
    assert decode_placement(encode_placement(long)).nics == ()


def test_integers_are_bandwidths_too() -> None:
    """JSON writers of other languages drop the fraction."""
    text = '{"v":1,"containers":{},"bandwidth_gb_per_s":{"low":1,"point":2,"high":3}}'
    assert decode_placement(text).bandwidth == Bandwidth(low=1.0, point=2.0, high=3.0)


def test_container_with_the_same_gpu_twice_is_refused() -> None:
    """An init container may share GPUs with the others, but none can have one twice."""
    assert decode_placement('{"v":1,"containers":{"init":["GPU-a"],"main":["GPU-a"]}}').containers["init"] == ("GPU-a",)
    with pytest.raises(PayloadError, match="the same GPU twice"):
        decode_placement('{"v":1,"containers":{"main":["GPU-a","GPU-a"]}}')


def test_observation_has_the_published_form() -> None:
    """GPU to holder, by UUID."""
    observed = Observed({"GPU-b": Holder("ml", "train-0", "main"), "GPU-a": Holder("ml", "train-1", "main")})
    text = encode_observed(observed)
    assert text.startswith('{"v":1,"gpus":{"GPU-a":{"namespace":"ml","name":"train-1","container":"main"},"GPU-b":')
    assert decode_observed(text) == observed


def test_observation_says_for_which_write_it_looked_and_who_else_computes() -> None:
    """Both only where there is something to say."""
    observed = Observed({}, generation=7, foreign_processes={"GPU-b": 2, "GPU-a": 1})
    assert encode_observed(observed) == '{"v":1,"gpus":{},"generation":7,"strangers":{"GPU-a":1,"GPU-b":2}}'
    assert decode_observed(encode_observed(observed)) == observed


def test_observation_names_all_who_share_a_gpu() -> None:
    """How many parts each has is told where it is more than one."""
    sharers = (Sharer("ml", "one", "main"), Sharer("ml", "two", "main", 2))
    observed = Observed({"GPU-a": Holder("ml", "one", "main")}, shared={"GPU-a": sharers})
    assert encode_observed(observed).count('"parts"') == 1
    assert decode_observed(encode_observed(observed)) == observed


def test_observation_names_devices_of_claims_as_the_driver_does() -> None:
    """Only the driver's ResourceSlices tell which GPU that is; what older readers know stays as it is."""
    user = ClaimUser("ml", "train-0", "main", "train-0-gpus-x7k2p", "n1", ("gpu-0", "gpu-3"))
    text = encode_observed(Observed({}, claimed=(user,)))
    assert decode_observed(text) == Observed({}, claimed=(user,))
    said = {"namespace": "ml", "name": "train-0", "container": "main", "claim": "train-0-gpus-x7k2p", "pool": "n1"}
    assert json.loads(text) == {"v": 1, "gpus": {}, "claimed": [{**said, "devices": ["gpu-0", "gpu-3"]}]}


def test_claim_says_when_no_other_gpu_will_do() -> None:
    """The node cannot read the pod, so its request stands in the ledger."""
    ledger = Ledger(1, (OTHER, replace(CLAIM, exact=True)))
    assert encode_ledger(ledger).count('"exact":true') == 1
    assert decode_ledger(encode_ledger(ledger)) == ledger


def test_version_of_the_node_is_a_number_or_not_told() -> None:
    """It is compared with others: what is no number would be later than nothing."""
    observed = Observed({}, node_version="4711")
    assert decode_observed(encode_observed(observed)) == observed
    with pytest.raises(PayloadError):
        decode_observed('{"v":1,"gpus":{},"node_version":"soon"}')


SHARE = replace(CLAIM, memory_gib=10, sharing_class="prod", compute_percent=25)
"""Of GPU-b."""


def test_ledger_holds_shares_in_the_published_form() -> None:
    """What a whole GPU has none of stands after what every claim has."""
    assert encode_ledger(Ledger(7, (SHARE,))).endswith(
        '"container":"main","resource_version":"4711","memory_gib":10,"sharing_class":"prod","compute_percent":25}]}'
    )


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 2), st.integers(0, 40), st.booleans()))
)
def test_ledger_of_shares_survives_and_is_the_same_text_in_any_order(
    claims: list[tuple[str, int, int, int, bool]],
) -> None:
    """Or is refused when it is made: whole beside anything, two classes, one container twice on a GPU."""
    made = tuple(
        Claim(f"GPU-{gpu}", f"uid-{uid}", "ml", f"p{uid}", f"c{container}", "1", False, gib or None, "prod" * prod)
        for gpu, uid, container, gib, prod in claims
    )
    on_gpu = [[claim for claim in made if claim.gpu == gpu] for gpu in ("GPU-a", "GPU-b")]
    is_good = all(
        len(on) < 2
        or (
            all(claim.memory_gib for claim in on)
            and len({claim.sharing_class for claim in on}) == 1
            and len({(claim.uid, claim.container) for claim in on}) == len(on)
        )
        for on in on_gpu
    )
    if not is_good:
        with pytest.raises(PayloadError):
            Ledger(1, made)
        return
    text = encode_ledger(Ledger(1, made))
    assert encode_ledger(Ledger(1, made[::-1])) == text
    assert encode_ledger(decode_ledger(text)) == text
    assert set(decode_ledger(text).claims) == set(made)


@pytest.mark.parametrize(
    ("second", "path"),
    [
        (replace(SHARE, uid="uid-2", memory_gib=None), "$.claims[1].gpu"),
        (replace(SHARE, uid="uid-2", sharing_class=""), "$.claims[1].sharing_class"),
        (replace(SHARE, memory_gib=1), "$.claims[1].container"),
    ],
)
def test_claims_that_contradict_each_other_are_refused(second: Claim, path: str) -> None:
    """With the path of the later one."""
    with pytest.raises(PayloadError) as caught:
        Ledger(1, (SHARE, second))
    assert caught.value.path == path
    with pytest.raises(PayloadError):
        Ledger(1, (second, SHARE))


def test_placement_of_shares_says_how_much_each_container_has_and_what_holds_it() -> None:
    """Neither key is there for whole GPUs."""
    shares = PlacementRecord(
        {"main": ("GPU-a",), "side": ("GPU-a",)}, memory_gib={"side": 4, "main": 10}, limits=Limits.CGROUP
    )
    text = encode_placement(shares)
    assert text.endswith('"memory_gib":{"main":10,"side":4},"limits":"cgroup"}')
    assert decode_placement(text) == shares
    with pytest.raises(PayloadError, match="a share of anything but one GPU"):
        PlacementRecord({"main": ("GPU-a", "GPU-b")}, memory_gib={"main": 10})


def test_what_was_written_before_there_were_shares_reads_as_whole_gpus() -> None:
    """Texts of version 0.1.0."""
    ledger = decode_ledger(
        '{"v":1,"generation":7,"node_uid":"node-uid","claims":[{"gpu":"GPU-b","uid":"uid-1","namespace":"ml",'
        '"name":"train-0","container":"main","resource_version":"4711"}]}'
    )
    assert ledger.claims == (CLAIM,)
    placement = decode_placement('{"v":1,"containers":{"main":["GPU-b"]},"ledger_generation":7}')
    assert (placement.memory_gib, placement.limits) == ({}, None)
