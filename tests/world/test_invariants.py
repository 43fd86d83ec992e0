"""The checks that end every scenario see what they are there to see."""

import re
from collections.abc import Mapping

import pytest

from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, node_object, share_pod
from tests.world.invariants import Json, broken_promises, violations, violations_on_the_way, violations_over_time
from topology.annotations import keys
from topology.annotations.records import (
    Claim,
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    encode_ledger,
    encode_observed,
    encode_placement,
)

NODE = SimulatedNode("n", "t4-4", shared_gpus=4)
A, B, C, D = (gpu.uuid for gpu in NODE.topology.gpus)


def node(claims: Mapping[str, str]) -> Json:
    """Return the node with a ledger: GPU → pod."""
    found = node_object(NODE)
    found["metadata"]["uid"] = "n"
    ledger = Ledger(1, tuple(Claim(gpu, uid, "default", uid, "main", "1") for gpu, uid in claims.items()))
    found["metadata"]["annotations"][keys.LEDGER] = encode_ledger(ledger)
    return found


def bound(name: str, *gpus: str, wants: int | None = None, phase: str = "Running", scheduler: str = "gputopo") -> Json:
    """Return a pod on the node; its UID is its name."""
    placement = {keys.PLACEMENT: encode_placement(PlacementRecord({"main": gpus}))} if gpus else {}
    found = gpu_pod(name, len(gpus) if wants is None else wants, placement, nodeName="n", schedulerName=scheduler)
    found["metadata"] |= {"uid": name, "namespace": "default"}
    return {**found, "status": {"phase": phase}}


def share(name: str, gpu: str, gib: int, sharing_class: str = "", wants: int | None = None) -> Json:
    """Return a pod on the node with a share of a GPU."""
    record = PlacementRecord({"main": (gpu,)}, memory_gib={"main": gib})
    annotations = {keys.PLACEMENT: encode_placement(record), keys.SHARING_CLASS: sharing_class}
    found = share_pod(name, gib if wants is None else wants, annotations, nodeName="n", schedulerName="gputopo")
    found["metadata"] |= {"uid": name, "namespace": "default"}
    return {**found, "status": {"phase": "Running"}}


def shared(*claims: tuple[str, str, int, str]) -> Json:
    """Return the node with a ledger of shares: GPU, pod, GiB and class."""
    found = node({})
    made = [
        Claim(gpu, uid, "default", uid, "main", "1", memory_gib=gib, sharing_class=of) for gpu, uid, gib, of in claims
    ]
    found["metadata"]["annotations"][keys.LEDGER] = encode_ledger(Ledger(1, tuple(made)))
    return found


def test_shares_of_one_class_that_fit_are_no_violation() -> None:
    """A T4 has 15 GiB, of which shares may take 14."""
    pods = [share("p", A, 10, "dev"), share("q", A, 4, "dev"), share("r", B, 1)]
    assert violations([shared((A, "p", 10, "dev"), (A, "q", 4, "dev"), (B, "r", 1, ""))], pods) == []


@pytest.mark.parametrize(
    ("ledger", "pods", "expected"),
    [
        (
            shared((A, "p", 10, "")),
            [share("p", A, 10), share("q", A, 5)],
            "INV1: .* has 14 GiB, and the pods .* 15 of it",
        ),
        (shared((A, "p", 1, "")), [share("p", A, 1), share("q", A, 1, "dev")], "INV1: the classes .*'dev'.* meet on"),
        (shared((A, "p", 1, "")), [share("p", A, 1), bound("q", A)], "INV1: .* belongs to the pods .*'p', 'q'"),
        (shared((A, "p", 2, "")), [share("p", A, 1)], "INV2: claimed but not placed: .*memory_gib=2"),
        (shared((A, "p", 1, "dev")), [share("p", A, 1)], "INV2: placed but not claimed: .*sharing_class=''"),
        (shared((A, "p", 1, "")), [share("p", A, 1, wants=2)], "INV4: p asks for {'main': 2} and has {'main': 1}"),
    ],
)
def test_violation_by_shares_is_seen(ledger: Json, pods: list[Json], expected: str) -> None:
    """Too much of a GPU, two classes on one, one whole and shared; and amounts that differ."""
    wrong = violations([ledger], pods)
    assert any(re.match(expected, sentence) for sentence in wrong), wrong


def test_order_is_no_violation() -> None:
    """Two pods with GPUs of their own, claimed for them; one that has ended has nothing any more."""
    pods = [bound("p", A, B), bound("q", C), bound("over", D, phase="Succeeded")]
    assert violations([node({A: "p", B: "p", C: "q"})], pods) == []


@pytest.mark.parametrize(
    ("ledger", "pods", "expected"),
    [
        (node({A: "p"}), [bound("p", A), bound("q", A)], "INV1: .* belongs to the pods .*'p', 'q'"),
        (node({}), [bound("p", A)], "INV2: placed but not claimed: .*pod='p'"),
        (node({A: "p", B: "p"}), [bound("p", A)], "INV2: claimed but not placed: .*pod='p'"),
        (node({A: "p"}), [], "INV2: claimed but not placed: .*pod='p'"),
        (node({A: "p"}), [bound("p", A, wants=2)], "INV4: p asks for {'main': 2} and has {'main': 1}"),
        (node({}), [bound("p", "GPU-of-another-node")], "INV4: no such GPU on its node"),
        (node({}), [bound("p", wants=1)], "INV4: p asks for {'main': 1} and has {}"),
    ],
)
def test_violation_is_seen(ledger: Json, pods: list[Json], expected: str) -> None:
    """Each kind, by itself."""
    wrong = violations([ledger], pods)
    assert any(re.match(expected, sentence) for sentence in wrong), wrong


@pytest.mark.parametrize(
    ("ledger", "pods", "expected"),
    [
        (
            node({A: "p"}),
            [bound("p", A), bound("q", A)],
            ["INV1: .*'p', 'q'", "INV2: placed but not claimed: .*pod='q'"],
        ),
        (node({}), [bound("p", A)], ["INV2: placed but not claimed: .*pod='p'"]),
        (node({A: "p", B: "p"}), [bound("p", A)], ["INV2: claimed but not placed: .*'GPU-.*pod='p'"]),
        (node({A: "p", B: "unbound"}), [bound("p", A), bound("over", A, phase="Failed")], []),
    ],
)
def test_what_no_write_may_leave_behind_is_seen(ledger: Json, pods: list[Json], expected: list[str]) -> None:
    """Claims of pods that are not bound yet are in order; whoever runs has its own, all of them and no others."""
    wrong = violations_on_the_way([ledger], pods)
    assert len(wrong) == len(expected)
    assert all(map(re.match, expected, wrong)), wrong


def test_a_claim_on_another_node_is_on_its_way() -> None:
    """A pod may have been claimed for twice, and bound once; what is left over is given up later."""
    other = node({C: "p"})
    other["metadata"]["name"] = "m"
    assert violations_on_the_way([node({A: "p"}), other], [bound("p", A)]) == []


def test_gpu_that_a_stranger_was_seen_with_is_not_free_for_ours() -> None:
    """What the node reports counts as much as what we wrote."""
    found = node({A: "p"})
    found["metadata"]["annotations"][keys.OBSERVED] = encode_observed(
        Observed({A: Holder("default", "stranger", "main")})
    )
    (wrong,) = violations([found], [bound("p", A), bound("stranger", wants=1, scheduler="other")])
    assert wrong.startswith("INV1")


def test_answer_that_came_to_nothing_is_a_broken_promise() -> None:
    """The scheduler was told of other GPUs than the pod has."""
    told = {"uid": "p", "node": "n", "gpus": [B]}
    assert list(broken_promises([told], [bound("p", B)])) == []
    assert len(list(broken_promises([told], [bound("p", A)]))) == 1


def test_what_came_and_went_is_seen() -> None:
    """A pod had a GPU before its claim was written, and lost it again."""
    changes = [node({}), bound("p", A), node({A: "p"}), bound("p", A, phase="Succeeded"), node({})]
    for version, changed in enumerate(changes):
        changed["metadata"]["resourceVersion"] = str(version)
    events = [{"type": "MODIFIED", "object": changed} for changed in reversed(changes)]
    (wrong,) = violations_over_time(events)
    assert wrong.startswith("at 1: INV2: placed but not claimed")
