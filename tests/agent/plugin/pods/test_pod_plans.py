"""What the ledger promises to each pod, and how much of it."""

from __future__ import annotations

import pytest

from agent.plugin.devices.share_devices import MAX_GIB, brief, share_devices, spelled_out
from agent.plugin.pods.listed_pods import PodPlan, gib_by_gpu, plans_of
from tests.agent.plans import planned
from tests.agent.plugin.choice.test_shares import part, shares
from topology.annotations.records import Claim, Ledger


def claimed(
    uid: str, gpu: str, version: str, gib: int | None = None, container: str = "main", *, exact: bool = False
) -> Claim:
    """Claim for the pod web-0 of this UID."""
    return Claim(
        gpu, uid, "ml", "web-0", container, version, memory_gib=gib, sharing_class="dev" if gib else "", exact=exact
    )


def plan_of(*claims: Claim) -> PodPlan:
    """Return the one plan that these claims are."""
    (plan,) = plans_of(Ledger(1, claims)).values()
    return plan


def test_a_pod_gets_as_many_devices_as_it_has_gib() -> None:
    """Or GPUs, where they are its own."""
    share, whole = shares("s", main=("a", 4), side=("b", 3)), planned("w", one="ab", two="c")
    assert (share.size, share.size_of("main"), share.size_of("side")) == (7, 4, 3)
    assert (whole.size, whole.size_of("one"), whole.size_of("two")) == (3, 2, 1)
    assert not PodPlan("ml", "p", "uid", {}).exact


def test_a_plan_covers_no_more_of_a_gpu_than_it_has() -> None:
    """Whichever of its share devices they are, and each GPU for itself."""
    plan = shares("p", main=("a", 4), side=("b", 3), more=("b", 2))
    assert plan.covers(part("a", 5, 4) | part("b", 0, 5))
    assert not plan.covers(part("a", 0, 5))
    assert not plan.covers(part("a", 0, 4) | part("b", 0, 6))
    assert not plan.covers(frozenset("c"))
    assert gib_by_gpu(part("a", 0, 3) | {"b"}) == {"a": 3, "b": 1}


def test_claims_become_the_plan_of_their_pod() -> None:
    """Each container's for itself, in one order; one claim for its own GPUs only makes the pod so."""
    claims = [claimed("u", f"GPU-{number}", "1", 2, f"c{number}", exact=number == 3) for number in range(6)]
    plan = plan_of(*reversed(claims))
    assert list(plan.containers.items()) == [(f"c{number}", frozenset({f"GPU-{number}"})) for number in range(6)]
    assert (plan.exact, plan.sharing_class, plan.memory_gib) == (True, "dev", {f"c{number}": 2 for number in range(6)})
    assert not plan_of(claimed("u", "GPU-0", "1")).exact


def test_shares_of_all_elder_namesakes_are_added_up() -> None:
    """Of a GPU that several had shares of; a whole one is none. A pod is as young as its youngest claim."""
    elder = claimed("a", "GPU-a", "2", 3), claimed("b", "GPU-a", "3", 4), claimed("c", "GPU-b", "4")
    youngest = claimed("d", "GPU-c", "1", 5), claimed("d", "GPU-c", "11", 1, "side")
    plan = plan_of(*youngest, *elder)
    assert (plan.uid, plan.former_gib) == ("d", {"GPU-a": 7})
    assert plan.former == {"GPU-a", "GPU-b"}


def test_devices_are_told_briefly_and_spelled_out_again() -> None:
    """Ranges, single ones and whole GPUs, in order; also names that only look like shares."""
    devices = ["GPU-b", *share_devices("GPU-a", 3), "GPU-a::7", "GPU-0", "GPU-c::x", "GPU-d::0", "42"]
    told = brief(reversed(devices))
    assert told == ["42", "GPU-0", "GPU-a::0-2,7", "GPU-b", "GPU-c::x", "GPU-d::0"]
    rest = [name for name in told if name != "GPU-c::x"]
    assert sorted(spelled_out(rest)) == sorted(device for device in devices if device != "GPU-c::x")


@pytest.mark.parametrize(
    "name", [f"GPU-a::{MAX_GIB}", f"GPU-a::0-{MAX_GIB}", "GPU-a::-5", "GPU-a::x", "GPU-a::", "GPU-a::0--1"]
)
def test_no_more_devices_are_spelled_out_than_a_gpu_has_gib(name: str) -> None:
    """A number that is out of all bounds would fill the memory."""
    with pytest.raises(ValueError, match=r".+"):
        list(spelled_out([name]))
    assert list(spelled_out([f"GPU-a::{MAX_GIB - 1}"])) == ["GPU-a::4095"]
