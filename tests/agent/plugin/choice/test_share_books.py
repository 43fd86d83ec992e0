"""What of each GPU is held and promised: each check by itself, as others in front of it would hide that one is missing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.plugin.choice.choose import AllocationRefusal, Ask, Basis, Grant
from agent.plugin.choice.forms import Shared
from agent.plugin.choice.shares import Books, Shareable, accept_share, choose_share
from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.identify import Planned, Unknown, Unplanned
from agent.plugin.pods.listed_pods import ListedPod, PodPlan
from tests.agent.plans import FirstCome, by_key, planned
from tests.agent.plugin.choice.test_shares import ALL, GIB, NOBODY, chosen, free, gpu_chosen, holding, part, shares

ANOTHER_CLASS, PROMISED = "it is shared by pods of another class", "it is promised to other pods"
WHOLE, NO_MORE = "another pod has the whole GPU, or is promised it", "no more GPUs of the node may be shared"
EVERYTHING = frozenset(device for gpu, gib in GIB.items() for device in share_devices(gpu, gib))
"""A kubelet may offer again what it has just handed out, and of a GPU that somebody has whole."""


def after_its_namesake(*, gpu: str = "b", former_gib: int | None = None) -> PodPlan:
    """Return the plan of a pod with 2 GiB, whose elder namesake has GPU a as a whole, or so much of it."""
    shares_of_a = {} if former_gib is None else {"a": former_gib}
    return PodPlan(
        "ml", "p", "uid", {"main": frozenset(gpu)}, former=frozenset("a"), memory_gib={"main": 2},
        former_gib=shares_of_a,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "plans", "max_gpus", "reason"),
    [
        ([], [], 3, None),
        ([], [], 0, NO_MORE),
        ([], [shares("x", main=("b", 2))], 1, NO_MORE),
        ([holding("x", part("b", 0, 2))], [], 1, NO_MORE),
        ([holding("x", part("a", 4, 2))], [], 1, None),
        ([holding("x", {"b"})], [], 1, None),
        ([], [planned("x", main="b")], 1, None),
        ([holding("x", {"a"})], [], 3, WHOLE),
        ([], [planned("x", main="a")], 3, WHOLE),
        ([], [after_its_namesake()], 3, WHOLE),
        ([], [after_its_namesake(former_gib=2)], 3, ANOTHER_CLASS),
        ([], [shares("x", main=("a", 2), sharing_class="prod")], 3, ANOTHER_CLASS),
        ([holding("x", part("a", 4, 2))], [shares("x", main=("a", 2), sharing_class="prod")], 3, ANOTHER_CLASS),
        ([holding("x", part("b", 0, 5))], [shares("late", main=("a", 6))], 3, None),
        ([holding("x", part("b", 0, 5))], [shares("late", main=("a", 7))], 3, PROMISED),
        ([holding("x", part("a", 4, 3))], [shares("late", main=("a", 3))], 3, None),
        ([holding("x", part("a", 4, 3))], [shares("late", main=("a", 4))], 3, PROMISED),
        ([holding("x", part("a", 4, 6))], [shares("x", main=("a", 6))], 3, None),
        ([holding("x", part("a", 4, 3))], [shares("x", main=("a", 6))], 3, None),
        ([holding("x", part("a", 4, 4))], [shares("x", main=("a", 2)), shares("late", main=("a", 3))], 3, PROMISED),
    ],
)  # fmt: skip
def test_part_of_a_gpu_robs_whoever_has_it_or_is_promised_it(
    pods: Sequence[ListedPod], plans: Sequence[PodPlan], max_gpus: int, reason: str | None
) -> None:
    """A pod of no class took 4 of the 10 GiB of GPU a: before it is told of its GPU, and before it starts."""
    took, shareable = part("a", 0, 4), Shareable(GIB, max_gpus)
    assert Books(pods, plans, shareable).robbed(took, "") == reason
    started = Shared(FirstCome, lambda: shareable).robbed(
        took, [*pods, holding("me", took)], ("ml", "me"), by_key(*plans)
    )
    assert started == (f"its share of a GPU cannot stay: {reason}" if reason else None)


def test_pod_that_starts_is_judged_by_its_class() -> None:
    """And its plan, which is for another GPU, is no promise to anybody else."""
    mine, prod = part("a", 0, 4), shares("x", main=("a", 6), sharing_class="prod")
    form, pods = Shared(FirstCome, lambda: ALL), [holding("me", mine)]
    of_class = {name: shares("me", main=("b", 10), sharing_class=name) for name in ("prod", "dev")}
    assert form.robbed(mine, pods, ("ml", "me"), by_key(of_class["prod"], prod)) is None
    assert ANOTHER_CLASS in str(form.robbed(mine, pods, ("ml", "me"), by_key(of_class["dev"], prod)))


def test_no_part_of_a_gpu_that_pods_may_not_share_is_anybodys() -> None:
    """The agent may have left it out since the kubelet heard of it."""
    assert Books([], [], ALL).robbed(part("x", 0, 1), "") == PROMISED


def test_what_is_promised_and_not_held_is_outstanding() -> None:
    """To pods, and to their elder namesakes."""
    plans = [after_its_namesake(gpu="a", former_gib=3), shares("x", main=("a", 1), side=("b", 4))]
    assert [Books([], plans, ALL).outstanding(gpu) for gpu in "abc"] == [6, 4, 0]
    assert [Books([holding("x", part("b", 0, 3))], plans, ALL).outstanding(gpu) for gpu in "ab"] == [6, 1]


def test_gpus_are_open_in_their_order() -> None:
    """So that equal ones are taken in the same order by all who ask."""
    many = [f"GPU-{number}" for number in range(8)]
    assert Books([], [], Shareable(dict.fromkeys(many, 4), 8)).open_to("", reversed(many)) == many


def test_nothing_is_given_that_the_kubelet_lists_with_another_container() -> None:
    """Though it offers that, too; of what is left the lowest numbers."""
    plan, there = shares("p", main=("a", 4)), [holding("x", part("a", 0, 3))]
    answer = choose_share(Ask(EVERYTHING, frozenset(), 4), there, Planned(plan, "main"), by_key(plan), ALL, FirstCome())
    assert answer == Grant(share_devices("a", 7)[3:], Basis.PLANNED)


def test_no_part_is_given_of_a_gpu_that_a_container_holds_whole() -> None:
    """Not even to a pod with the last place to go to."""
    there = [holding("x", {"a"}), holding("y", {"b"}), holding("z", {"c"})]
    answer = choose_share(Ask(EVERYTHING, frozenset(), 4), there, Unplanned(), {}, ALL, FirstCome())
    assert answer == AllocationRefusal("no GPU has 4 GiB left that are promised to no other pod")


def test_planned_share_may_be_the_last_of_its_gpu() -> None:
    """Nothing of it has to stay."""
    plan = shares("p", main=("a", 10))
    assert chosen(10, Planned(plan, "main"), plan) == Grant(share_devices("a", 10), Basis.PLANNED)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(("planned_on", "basis"), [("b", Basis.PLANNED), ("a", Basis.ADOPTED)])
def test_container_stays_on_the_gpu_that_its_init_container_had(planned_on: str, basis: Basis, *, listed: bool) -> None:
    """Whatever the plan says by now. The kubelet may list what that had with the pod, and takes each of it once."""
    plan, kept = shares("p", main=(planned_on, 6)), part("b", 4, 2)
    there = [holding("x", part("b", 0, 4)), *([holding("p", kept)] if listed else [])]
    answer = choose_share(Ask(EVERYTHING, kept, 6), there, Planned(plan, "main"), by_key(plan), ALL, FirstCome())
    assert answer == Grant(share_devices("b", 10)[4:], basis)
    ask = Ask(EVERYTHING, part("c", 4, 2), 6)
    assert gpu_chosen(choose_share(ask, NOBODY, Planned(plan, "main"), by_key(plan), ALL, FirstCome())) == "c"


def test_init_container_gets_a_gpu_on_which_its_pod_has_room() -> None:
    """It has no claim of its own: the first one that is enough."""
    gib, own_gib = dict.fromkeys("abcdefgh", 12), {gpu: 4 + number for number, gpu in enumerate("abcdefgh")}
    plan = PodPlan("ml", "p", "uid", {gpu: frozenset(gpu) for gpu in gib}, memory_gib=own_gib)
    ask = Ask(free(gib=gib), frozenset(), 6)
    answer = choose_share(ask, NOBODY, Planned(plan, None), by_key(plan), Shareable(gib, 8), FirstCome())
    assert answer == Grant(share_devices("c", 6), Basis.PLANNED)


def test_stray_goes_to_the_fullest_gpu_that_is_shared() -> None:
    """Not to one that comes first, nor to one that is smaller and not shared."""
    there = [holding("x", part("a", 0, 2)), holding("y", part("b", 0, 5))]
    assert gpu_chosen(chosen(2, Unplanned(), pods=there)) == "b"
    gib = {"a": 10, "b": 3, "c": 3}
    ask = Ask(free(gib=gib) - there[0].gpus, frozenset(), 2)
    assert gpu_chosen(choose_share(ask, there[:1], Unplanned(), {}, Shareable(gib, 3), FirstCome())) == "a"


def test_whole_gpus_are_not_counted_among_those_that_are_shared() -> None:
    """One more may be."""
    one, there = Shareable(GIB, 1), [holding("x", {"a"})]
    assert gpu_chosen(chosen(5, Unplanned(), pods=there, shareable=one)) == "b"
    assert gpu_chosen(chosen(5, Unplanned(), planned("x", main="a"), shareable=one)) == "b"


def test_pod_that_adopts_goes_beside_its_own_class() -> None:
    """Not beside a stray, of whose class nobody knows."""
    mine, prod = (shares(name, main=(gpu, 4), sharing_class="prod") for name, gpu in (("mine", "b"), ("x", "c")))
    there = [holding("stray", part("a", 0, 5)), holding("y", part("b", 0, 8))]
    assert gpu_chosen(chosen(4, Planned(mine, "main"), mine, prod, pods=there)) == "c"


@pytest.mark.parametrize(("exact", "refused"), [((), False), ((False, False), False), ((True, False), True)])
def test_one_who_may_be_any_is_refused_where_one_of_them_takes_its_own_only(
    exact: tuple[bool, ...], *, refused: bool
) -> None:
    """All others adopt what is nobody's."""
    plans = tuple(shares(f"p{number}", main=("a", 4), exact=each) for number, each in enumerate(exact))
    who = Unknown("nobody knows", plans)
    assert isinstance(chosen(2, who, *plans), AllocationRefusal) is refused
    assert isinstance(accept_share(part("b", 0, 2), NOBODY, who, by_key(*plans), ALL), AllocationRefusal) is refused
    if not refused:
        answer = chosen(2, who, *plans)
        assert isinstance(answer, Grant) and answer.basis is Basis.UNPLANNED


def test_what_an_init_container_had_is_given_in_the_order_of_its_numbers() -> None:
    """So that one set of share devices is one answer."""
    kept = part("b", 2, 8)
    ask = Ask(EVERYTHING, kept, 8)
    assert choose_share(ask, NOBODY, Unplanned(), {}, ALL, FirstCome()) == Grant(
        share_devices("b", 10)[2:], Basis.UNPLANNED
    )


def test_gpus_of_which_parts_were_taken_are_named_in_their_order() -> None:
    """One fault is one message."""
    devices = frozenset(device for gpu in "hgfedcba" for device in share_devices(gpu, 1))
    answer = accept_share(devices, NOBODY, Unplanned(), {}, ALL)
    assert answer == AllocationRefusal("the kubelet took parts of a, b, c, d, e, f, g, h, and a share is of one GPU")
