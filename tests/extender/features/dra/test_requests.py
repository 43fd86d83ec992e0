"""Which claims are ours, what they request, and with which words others are refused."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
import pytest

from extender.cluster.objects.kinds import Pod
from extender.features.dra.claim_spec import OUR_CLASS, DeviceClass
from extender.features.dra.pods_by_claim import as_gpu_pod
from extender.features.dra.requests import DeviceDemand, DeviceRequest, is_ours, kept, names_any, read_demands, trimmed
from extender.features.dra.selectors import Selectors
from tests.dra import Json, read_claim, waiting
from tests.extender.features.dra.cases import GPU, TOLERATION, alternative, claim, device_class, exactly, opaque
from topology.annotations import keys
from topology.errors import RequestError

SELECTORS: Final = Selectors()
H100: Final = f'{GPU}.productName.contains("H100")'


def demands(*claims: Json, of: Json | None = None) -> tuple[DeviceDemand, ...]:
    ours = msgspec.convert(of or device_class(), DeviceClass)
    return read_demands([read_claim(item) for item in claims], {OUR_CLASS: ours}, SELECTORS)


def demand(*claims: Json, of: Json | None = None) -> DeviceDemand:
    (alternative,) = demands(*claims, of=of)
    return alternative


def first(*alternatives: Json) -> Json:
    return {"name": "gpus", "firstAvailable": [*alternatives]}


def nic() -> Json:
    return {"name": "nic", "exactly": {"deviceClassName": "nics.example.com", "count": 1}}


def test_the_counts_of_all_claims_are_added() -> None:
    answer = demand(claim("a", exactly(2, "first"), exactly(1, "second")), claim("b", exactly(4)))
    assert answer.gpus == 7
    assert [(request.claim_uid, request.name, request.count) for request in answer.requests] == [
        ("uid-a", "first", 2),
        ("uid-a", "second", 1),
        ("uid-b", "gpus", 4),
    ]


def test_a_single_alternative_is_a_request() -> None:
    """It has the name that results have."""
    answer = demand(claim("a", first(alternative(4, "large", H100))))
    assert [(request.name, request.count, request.selectors) for request in answer.requests] == [
        ("gpus/large", 4, (H100,))
    ]


def test_alternatives_are_in_order_and_have_their_own_selectors_and_constraints() -> None:
    """A constraint that names one alternative counts for no other one."""
    request = first(alternative(4, "large", H100), alternative(2, "small"))
    same = [{"requests": ["gpus/small"], "matchAttribute": "gpu.nvidia.com/productName"}]
    large, small = demands(claim("a", request, constraints=same))
    assert [(item.requests[0].name, item.gpus) for item in (large, small)] == [("gpus/large", 4), ("gpus/small", 2)]
    assert (large.selectors, large.match_attributes) == ((H100,), ())
    assert (small.selectors, small.match_attributes) == ((), ("gpu.nvidia.com/productName",))


def test_alternatives_of_several_claims_are_combined() -> None:
    """Those of the last one first, as kube-scheduler goes through them."""
    counts = first(alternative(2, "large"), alternative(1, "small"))
    combined = demands(claim("a", counts), claim("b", counts))
    assert [[request.count for request in item.requests] for item in combined] == [[2, 2], [2, 1], [1, 2], [1, 1]]
    with pytest.raises(RequestError, match=r"ResourceClaim ml/d: .*more than 8 combinations of alternatives"):
        demands(*(claim(name, counts) for name in "abcd"))


def test_selectors_of_the_class_count_for_every_request() -> None:
    """All but the one that keeps kube-scheduler away."""
    answer = demand(claim("a", exactly(1, "gpus", f"{GPU}.index > 1")), of=device_class(H100))
    assert answer.selectors == (H100, f"{GPU}.index > 1")


def test_requests_of_a_pod_may_have_different_tolerations() -> None:
    """These only say what later taints may do: GPUs with taints are planned for nobody."""
    answer = demand(claim("a", exactly(1, "a", tolerations=[TOLERATION]), exactly(1, "b")))
    assert [len(request.tolerations) for request in answer.requests] == [1, 0]


REQUEST = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    ("devices", "field", "reason"),
    [
        ([exactly(1), nic()], "spec.devices.requests[1].exactly.deviceClassName", "nics.example.com in a claim of"),
        (
            [first({**nic()["exactly"], "name": "other"}), exactly()],
            f"{REQUEST}.firstAvailable[0].deviceClassName",
            "nics.example.com in a claim of",
        ),
        ([first(*(alternative(1, name) for name in "abcdefghi"))], "spec.devices.requests", "more than 8 combinations"),
        ([first(alternative(33, "a"), alternative(34, "b"))], "spec.devices.requests", "more than 32 devices"),
        ([exactly(allocationMode="All", count=0)], f"{REQUEST}.exactly.allocationMode", "All is not supported"),
        ([exactly(allocationMode="Some")], f"{REQUEST}.exactly.allocationMode", "Some is not supported"),
        ([exactly(adminAccess=True)], f"{REQUEST}.exactly.adminAccess", "not supported"),
        ([exactly(capacity={"requests": {"memory": "1Gi"}})], f"{REQUEST}.exactly.capacity", "not supported"),
        ([exactly(33)], "spec.devices.requests", "more than 32 devices"),
        ([exactly(30, "a"), exactly(3, "b")], "spec.devices.requests", "more than 32 devices"),
        ([exactly(count=-1)], f"{REQUEST}.exactly.count", "-1 devices"),
        ([exactly(derivedAttributes=[])], f"{REQUEST}.exactly", "unknown field `derivedAttributes`"),
        ([{**exactly(), "later": {}}], REQUEST, "unknown field `later`"),
        ([{"name": "x"}, exactly()], REQUEST, "neither exactly nor firstAvailable"),
        ([exactly(1, "gpus", "device.")], f"{REQUEST}.exactly.selectors[0].cel.expression", "parse"),
        ([exactly(1, "gpus", "x" * 5000)], f"{REQUEST}.exactly.selectors[0].cel.expression", "4096 bytes"),
        (
            [exactly(1, "gpus", *(f"device.driver != '{at}'" for at in range(9)))],
            f"{REQUEST}.exactly.selectors[8].cel.expression",
            "more than 8 expressions",
        ),
        (
            [exactly(1, "gpus", *(f"'{at}' == '{'x' * 3000}'" for at in range(2)))],
            f"{REQUEST}.exactly.selectors[1].cel.expression",
            "4096 bytes",
        ),
        (
            [exactly(1, "gpus", *(f"[{'1,' * 50} {at}].all(x, x == 1)" for at in range(2)))],
            f"{REQUEST}.exactly.selectors[1].cel.expression",
            "too expensive together",
        ),
        (
            [exactly(1, "gpus", *(f"{at}{'+1' * 300} > 0" for at in range(2)))],
            f"{REQUEST}.exactly.selectors[1].cel.expression",
            "too expensive together",
        ),
        (
            [exactly(tolerations=[{"operator": "Maybe"}])],
            f"{REQUEST}.exactly.tolerations[0].operator",
            "Maybe is not known",
        ),
        ([exactly(1, "a", H100), exactly(1, "b")], "spec.devices.requests", "the same selectors"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(devices: list[Json], field: str, reason: str) -> None:
    """The sentence names claim and field."""
    with pytest.raises(RequestError) as refused:
        demand(claim("a", *devices))
    assert str(refused.value).startswith(f"ResourceClaim ml/a: {field}: ")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("devices", "field"),
    [
        ({"constraints": [{"distinctAttribute": "x.org/y"}]}, "spec.devices.constraints[0]"),
        ({"constraints": [{"requests": ["a"], "matchAttribute": "x.org/y"}]}, "spec.devices.constraints[0].requests"),
        ({"constraints": [{"somethingNew": 1}]}, "spec.devices.constraints[0]"),
        ({"config": [{"requests": ["a"]}]}, "spec.devices.config[0]"),
    ],
)
def test_other_constraints_and_configuration_are_refused(devices: dict[str, Any], field: str) -> None:
    """Only `matchAttribute` of all requests, and opaque configuration."""
    with pytest.raises(RequestError, match=re.escape(f"ResourceClaim ml/a: {field}: ")):
        demand(claim("a", exactly(1, "a"), exactly(1, "b"), **devices))


def test_two_claims_have_no_constraints() -> None:
    """One set of GPUs could not be shared out without a search."""
    constrained = claim("a", exactly(), constraints=[{"matchAttribute": "x.org/y"}])
    for claims in ((claim("b", exactly()), constrained), (constrained, claim("b", exactly()))):
        with pytest.raises(RequestError, match=r"spec\.devices\.constraints: supported for a pod's only claim"):
            demand(*claims)


def test_a_class_that_kube_scheduler_could_allocate_from_is_refused() -> None:
    """Then there would be two planners for one GPU."""
    with pytest.raises(RequestError, match="kube-scheduler"):
        demand(claim("a", exactly()), of={"metadata": {}, "spec": {"selectors": []}})


def test_any_mention_of_our_class_makes_a_claim_ours() -> None:
    """Otherwise a claim that is mixed would be ignored, and not refused."""
    assert is_ours(read_claim(claim("a", nic(), first({"name": "x", **exactly()["exactly"]}))))
    assert not any(is_ours(read_claim(item)) for item in (claim("a", nic()), waiting("empty")))


def test_of_a_claim_is_kept_what_is_read_of_it() -> None:
    """Annotations are those of users to us, and the one owner is the pod."""
    written = claim("a", exactly())
    written["metadata"] |= {
        "annotations": {keys.REQUIRED_AFFINITY: "nvlink", "example.com/x": "y" * 100_000},
        "labels": {"app": "x"},
        "ownerReferences": [{"kind": "Job", "uid": "j"}, {"kind": "Pod", "uid": "p", "controller": True}],
        "finalizers": ["example.com/keep"],
        "deletionTimestamp": "2026-11-29T12:00:00Z",
    }
    kept = trimmed(read_claim(written))
    assert kept.metadata.annotations == {keys.REQUIRED_AFFINITY: "nvlink"}
    assert (kept.pod, kept.metadata.labels, kept.metadata.finalizers) == ("p", None, ["example.com/keep"])
    assert kept.metadata.deletion_timestamp
    assert len(msgspec.json.encode(kept)) < 1000
    assert kept.spec == read_claim(written).spec


@pytest.mark.parametrize("where", ["annotation", "configuration"])
def test_a_claim_that_is_too_large_to_be_kept_is_refused(where: str) -> None:
    """It stays ours, so that the pod says why it waits; a withdrawal writes its finalizers back."""
    parameters = "x" * 70_000 if where == "configuration" else ""
    written = claim("a", exactly(), config=[opaque(text=parameters)])
    written["metadata"] |= {"finalizers": ["example.com/keep"]}
    if where == "annotation":
        written["metadata"]["annotations"] = {keys.REQUIRED_AFFINITY: "x" * 70_000}
    kept = trimmed(read_claim(written))
    assert is_ours(kept) and kept.metadata.finalizers == ["example.com/keep"]
    assert len(msgspec.json.encode(kept)) < 1000
    with pytest.raises(RequestError, match=r"ResourceClaim ml/a: spec\.devices: 70\d{3} bytes .* more than 65536"):
        read_demands([kept], {OUR_CLASS: msgspec.convert(device_class(), DeviceClass)}, SELECTORS)


def gpu_pod(annotations: dict[str, str], *claims: dict[str, str], limits: dict[str, str] | None = None) -> Pod:
    metadata = {"name": "pod", "namespace": "ml", "annotations": annotations}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits or {}}}]}
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, Pod)
    items = [claim(str(at), exactly(2)) for at, _ in enumerate(claims)]
    for item, written in zip(items, claims, strict=True):
        item["metadata"]["annotations"] = written
    read = [read_claim(item) for item in items]
    requests = tuple(DeviceRequest(item.metadata.uid, "gpus", 2) for item in read)
    return as_gpu_pod(pod, read, DeviceDemand(requests), keys.GPU_RESOURCE)


def test_the_planner_reads_a_pod_with_the_annotations_of_its_claims() -> None:
    """What the pod says itself counts first. Annotations of others are not taken over."""
    by_claim = {keys.REQUIRED_AFFINITY: "nvlink", keys.RELAX_AFTER: "1m", "example.com/x": "y"}
    pod = gpu_pod({keys.RELAX_AFTER: "2m"}, by_claim, by_claim)
    assert pod.metadata.annotations == {keys.REQUIRED_AFFINITY: "nvlink", keys.RELAX_AFTER: "2m"}
    assert pod.spec.containers[0].resources.limits == {keys.GPU_RESOURCE: "4"}


def test_claims_that_contradict_each_other_or_the_pod_are_refused() -> None:
    """Neither would be met."""
    with pytest.raises(RequestError, match="different values"):
        gpu_pod({}, {keys.REQUIRED_AFFINITY: "nvlink"}, {keys.REQUIRED_AFFINITY: "numa"})
    with pytest.raises(RequestError, match="in addition to a ResourceClaim"):
        gpu_pod({}, {}, limits={keys.GPU_RESOURCE: "1"})


@pytest.mark.parametrize(
    ("name", "is_kept"), [("gpu.nvidia.com", True), ("nic.example.com", False)], ids=["reserved", "another"]
)
def test_of_a_claim_of_others_nothing_is_kept_but_a_reserved_class(name: str, *, is_kept: bool) -> None:
    """Wherever among its alternatives it is named: kube-scheduler may give it a GPU."""
    ways = [{"name": "a", "deviceClassName": "fpga.example.com"}, {"name": "b", "deviceClassName": name}]
    written = {
        "metadata": {"name": "c", "namespace": "ml", "uid": "u", "annotations": {"note": "x" * 1000}},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": ways}]}},
    }
    claim = kept(read_claim(written), {"gpu.nvidia.com"})
    assert names_any(claim, {"gpu.nvidia.com"}) is is_kept
    assert claim.metadata.annotations is None
    assert not names_any(claim, {"fpga.example.com"})
