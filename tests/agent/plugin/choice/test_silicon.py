"""Nothing is handed out whose silicon a container holds, or a pod is promised, by another device of the same GPU."""

from __future__ import annotations

import pytest

from agent.kubelet.serving.devices import DeviceLists
from agent.kubelet.serving.offering import Offering
from agent.plugin.choice.choose import AllocationRefusal, Ask, Basis, Grant
from agent.plugin.choice.forms import DeviceForm, Shared, Whole
from agent.plugin.choice.shares import Shareable
from agent.plugin.pods.holders import held_of
from agent.plugin.pods.identify import Identity, Planned, Unplanned
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod, PodPlan, plans_of
from tests.agent.plans import FirstCome, by_key
from topology.annotations.records import Claim, Holder, Ledger, Sharer
from topology.node.silicon import NO_SLICES, Silicon

NOW = Silicon({"MIG-1a": "GPU-1", "MIG-1b": "GPU-1", "MIG-2a": "GPU-2"}, {"MIG-3old": "GPU-3"})
WHOLE = Whole(FirstCome, silicon=lambda: NOW)
SHARED = Shared(FirstCome, lambda: Shareable({"GPU-3": 4, "GPU-4": 4}, 2, NOW))
SHARES = frozenset(f"{gpu}::{number}" for gpu in ("GPU-3", "GPU-4") for number in range(4))
OFFERED = frozenset({"MIG-1a", "MIG-1b", "MIG-2a", "GPU-3", "GPU-4"})
EXCLUDED = [
    ("GPU-1", {"MIG-1a", "MIG-1b"}),
    ("MIG-1a", {"MIG-1a"}),
    ("MIG-3old", {"GPU-3"}),
    ("GPU-4::2", {"GPU-4"}),
    ("MIG-of-nobody-knows", OFFERED),
]


def holding(*devices: str) -> list[ListedPod]:
    """Return what the kubelet lists: one pod with these, and the one that asks."""
    return [
        ListedPod("ml", "owner", (ListedContainer("main", frozenset(devices)),)),
        ListedPod("ml", "p", (ListedContainer("main"),)),
    ]


def plan(name: str, *devices: str, exact: bool = False, **parents: str) -> PodPlan:
    return PodPlan("ml", name, f"uid-{name}", {"main": frozenset(devices)}, exact, parents=parents)


def choose(
    form: DeviceForm, pods: list[ListedPod], who: Identity, *plans: PodPlan, of: frozenset[str] = OFFERED
) -> set[str]:
    """Return all devices that may be had, asked for one by one."""
    answers = (form.choose(Ask(frozenset({device}), frozenset(), 1), pods, who, by_key(*plans)) for device in of)
    return {device for answer in answers if isinstance(answer, Grant) for device in answer.gpus}


@pytest.mark.parametrize(("held", "excluded"), EXCLUDED)
def test_what_a_container_holds_keeps_its_silicon_from_others(held: str, excluded: set[str]) -> None:
    """Asked before, and where the kubelet has not asked; for a pod without a plan, and for one that was promised it."""
    for device in OFFERED:
        mine = plan("p", device)
        for who, plans in ((Unplanned(), ()), (Planned(mine, "main"), (mine,))):
            assert (device in choose(WHOLE, holding(held), who, *plans)) == (device not in excluded)
            accepted = WHOLE.accept(frozenset({device}), holding(held), who, by_key(*plans))
            assert isinstance(accepted, AllocationRefusal) == (device in excluded)


@pytest.mark.parametrize(("promised", "excluded"), [case for case in EXCLUDED if "::" not in case[0]])
def test_what_a_pod_is_promised_keeps_its_silicon_from_others(promised: str, excluded: set[str]) -> None:
    """Also from a pod that adopts another device than its own; and a container with it must not start."""
    theirs, mine = plan("owner", promised), plan("p", "GPU-that-is-gone")
    for who, plans in ((Unplanned(), (theirs,)), (Planned(mine, "main"), (theirs, mine))):
        assert choose(WHOLE, holding(), who, *plans) == OFFERED - excluded
        for device in OFFERED:
            accepted = WHOLE.accept(frozenset({device}), holding(), who, by_key(*plans))
            assert isinstance(accepted, AllocationRefusal) == (device in excluded)
    robbed = {device for device in OFFERED if WHOLE.robbed(frozenset({device}), [], ("ml", "p"), by_key(theirs))}
    assert robbed == excluded


def test_a_pod_gets_another_device_for_one_whose_silicon_is_held() -> None:
    """It adopts, unless it takes its own only."""
    who = Planned(plan("p", "GPU-3"), "main")
    ask = Ask(OFFERED, frozenset(), 1)
    answer = WHOLE.choose(ask, holding("MIG-3old", "GPU-1"), who, by_key(who.plan))
    assert answer == Grant(("GPU-4",), Basis.ADOPTED)
    exact = Planned(plan("p", "GPU-3", exact=True), "main")
    assert isinstance(WHOLE.choose(ask, holding("MIG-3old"), exact, by_key(exact.plan)), AllocationRefusal)


def test_the_ledger_tells_of_which_gpu_a_slice_was() -> None:
    """To an agent that has not seen that cut; of an elder namesake, too."""
    claims = (
        Claim("MIG-4old", "u1", "ml", "owner", "main", "1", parent="GPU-4"),
        Claim("GPU-9", "u2", "ml", "owner", "main", "2"),
    )
    plans = plans_of(Ledger(1, claims))
    assert plans["ml", "owner"].former == {"MIG-4old"}
    assert choose(WHOLE, holding("MIG-4old"), Unplanned(), *plans.values()) == OFFERED - {"GPU-4"}


@pytest.mark.parametrize("is_promised", [True, False])
def test_no_share_is_of_a_gpu_of_which_somebody_has_a_slice(*, is_promised: bool) -> None:
    """Held or promised, planned or not; shares beside shares stay."""
    pods, theirs = (holding(), plan("owner", "MIG-3old")) if is_promised else (holding("MIG-3old"), None)
    others = (theirs,) if theirs else ()
    assert choose(SHARED, pods, Unplanned(), *others, of=SHARES) == {each for each in SHARES if "GPU-4" in each}
    for gpu in ("GPU-3", "GPU-4"):
        accepted = SHARED.accept(frozenset({f"{gpu}::0"}), pods, Unplanned(), by_key(*others))
        assert isinstance(accepted, AllocationRefusal) == (gpu == "GPU-3")
    assert bool(SHARED.robbed(frozenset({"GPU-3::0"}), pods, ("ml", "p"), by_key(*others)))
    assert not SHARED.robbed(frozenset({"GPU-4::0"}), pods, ("ml", "p"), by_key(*others))


def test_a_planned_share_is_not_of_a_gpu_of_which_a_container_has_a_slice() -> None:
    """The ledger may not know of it."""
    mine = PodPlan("ml", "p", "uid-p", {"main": frozenset({"GPU-3"})}, exact=True, memory_gib={"main": 1})
    who = Planned(mine, "main")
    assert not choose(SHARED, holding("MIG-3old"), who, mine, of=SHARES)
    assert isinstance(SHARED.accept(frozenset({"GPU-3::0"}), holding("MIG-3old"), who, by_key(mine)), AllocationRefusal)


def test_holders_of_slices_that_are_gone_are_reported() -> None:
    """Whole and in replicas; what is no slice of ours is passed over."""
    pods = [*holding("MIG-old", "MIG-older::1"), ListedPod("ml", "q", (ListedContainer("main", elsewhere=("MIG-x",)),))]
    held = held_of(pods, {"GPU-1"}, NO_SLICES)
    assert held.gpus == {"MIG-old": Holder("ml", "owner", "main"), "MIG-older": Holder("ml", "owner", "main")}
    assert held.shared == {"MIG-older": (Sharer("ml", "owner", "main"),)}


def test_slices_are_remembered_for_as_long_as_containers_hold_them() -> None:
    """Over several cuts; one that comes back is of the present cut."""
    offering = Offering(DeviceLists(lambda _: "nvidia.com/gpu"), tuple)
    offering.cut({"GPU-1": frozenset({"MIG-a", "MIG-b"})})
    offering.cut({"GPU-1": frozenset({"MIG-c"})})
    offering.cut({})
    assert offering.silicon == Silicon({}, {"MIG-a": "GPU-1", "MIG-b": "GPU-1", "MIG-c": "GPU-1"})
    offering.saw(holding("MIG-a", "MIG-b::0"))
    offering.cut({"GPU-1": frozenset({"MIG-a"})})
    assert offering.silicon == Silicon({"MIG-a": "GPU-1"}, {"MIG-b": "GPU-1"})


def test_slices_that_nobody_can_name_are_left_alone() -> None:
    """NVML tells them with SYS_ADMIN only. Those that were known are remembered all the same."""
    offering = Offering(DeviceLists(lambda _: "nvidia.com/gpu"), tuple)
    offering.cut({"GPU-3": frozenset({"MIG-3old"})})
    offering.cut({"GPU-1": frozenset()})
    pods = holding("MIG-of-somebody", "MIG-3old")
    offering.saw(pods)
    form = Whole(FirstCome, silicon=lambda: offering.silicon)
    assert choose(form, pods, Unplanned(), of=frozenset({"GPU-2", "GPU-3"})) == {"GPU-2"}
    assert held_of(pods, {"GPU-1", "GPU-2"}, offering.silicon).gpus.keys() == {"MIG-3old"}
