"""Which share of which GPU a container gets: what the ledger promises it, and nothing that is promised to anybody else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from agent.plugin.choice.choose import AllocationRefusal, Ask, Basis, Grant
from agent.plugin.choice.shares import Shareable, accept_share, choose_share
from agent.plugin.devices.offers import gpu_of
from agent.plugin.devices.share_devices import share_devices
from agent.plugin.pods.identify import Identity, Planned, Unknown, Unplanned
from agent.plugin.pods.listed_pods import ListedContainer, ListedPod, PodPlan
from tests.agent.plans import FirstCome, by_key, planned

GIB = {"a": 10, "b": 10, "c": 10}
ALL = Shareable(GIB, 3)
NOBODY: list[ListedPod] = []


def shares(name: str, *, exact: bool = False, sharing_class: str = "", **containers: tuple[str, int]) -> PodPlan:
    """Return what the ledger promises to a pod: container = GPU and GiB."""
    gpus = {container: frozenset({gpu}) for container, (gpu, _) in containers.items()}
    gib = {container: gib for container, (_, gib) in containers.items()}
    return PodPlan("ml", name, f"uid-{name}", gpus, exact, memory_gib=gib, sharing_class=sharing_class)


def part(gpu: str, first: int, count: int) -> frozenset[str]:
    """Return share devices of a GPU by their numbers."""
    return frozenset(share_devices(gpu, first + count)[first:])


def holding(name: str, devices: Iterable[str]) -> ListedPod:
    """Return a pod whose container holds these."""
    return ListedPod("ml", name, (ListedContainer("main", frozenset(devices)),))


def free(*pods: ListedPod, gib: Mapping[str, int] = GIB) -> frozenset[str]:
    """Return what a kubelet would offer beside these pods."""
    held = {device for pod in pods for device in pod.gpus}
    return (
        frozenset(device for gpu in gib for device in share_devices(gpu, gib[gpu]))
        - held
        - {device for gpu in held for device in share_devices(gpu, gib.get(gpu, 0))}
    )


def chosen(
    size: int, who: Identity, *plans: PodPlan, pods: list[ListedPod] = NOBODY, shareable: Shareable = ALL
) -> Grant | AllocationRefusal:
    """Return the answer to GetPreferredAllocation."""
    ask = Ask(free(*pods), frozenset(), size)
    return choose_share(ask, pods, who, by_key(*plans), shareable, FirstCome())


def gpu_chosen(answer: Grant | AllocationRefusal) -> str:
    """Return the one GPU that was chosen."""
    assert isinstance(answer, Grant), answer
    (gpu,) = {gpu_of(device) for device in answer.gpus}
    return gpu


@pytest.mark.parametrize("gpu", ["a", "b", "c"])
def test_container_gets_its_planned_gpu_whatever_else_is_offered(gpu: str) -> None:
    """The lowest numbers that are free there."""
    plan = shares("p", main=(gpu, 4))
    pods = [holding("other", part(gpu, 0, 3))]
    answer = chosen(4, Planned(plan, "main"), plan, pods=pods)
    assert answer == Grant(tuple(share_devices(gpu, 7)[3:]), Basis.PLANNED)


def test_gpu_that_somebody_holds_whole_is_not_shared_though_the_ledger_says_so() -> None:
    """A pod that came around the extender took it, and the extender has not heard; the kubelet still offers its GiB."""
    taken, everything = [holding("stray", {"a"})], frozenset(share_devices("a", 10))
    for exact in (True, False):
        plan = shares("p", exact=exact, main=("a", 4))
        who = Planned(plan, "main")
        ask = Ask(everything | free(*taken), frozenset(), 4)
        answer = choose_share(ask, taken, who, by_key(plan), ALL, FirstCome())
        assert isinstance(answer, AllocationRefusal) if exact else gpu_chosen(answer) == "b"
        assert isinstance(accept_share(part("a", 0, 4), taken, who, by_key(plan), ALL), AllocationRefusal)


def test_each_container_gets_the_gpu_of_its_claim() -> None:
    """And one without a claim of its own, as an init container, the GPU on which its pod has room."""
    plan = shares("p", main=("b", 4), side=("c", 2), setup=("b", 3))
    assert gpu_chosen(chosen(4, Planned(plan, "main"), plan)) == "b"
    assert gpu_chosen(chosen(2, Planned(plan, "side"), plan)) == "c"
    assert gpu_chosen(chosen(7, Planned(plan, None), plan)) == "b"


def test_pod_that_wants_its_own_gpu_is_refused_where_that_is_full() -> None:
    """Though there is room elsewhere."""
    plan, pods = shares("p", main=("a", 4), exact=True), [holding("other", part("a", 0, 7))]
    assert isinstance(chosen(4, Planned(plan, "main"), plan, pods=pods), AllocationRefusal)
    adopting = shares("p", main=("a", 4))
    answer = chosen(4, Planned(adopting, "main"), adopting, pods=pods)
    assert (gpu_chosen(answer), answer.basis if isinstance(answer, Grant) else "") == ("b", Basis.ADOPTED)


def test_stray_gets_room_that_is_promised_to_nobody() -> None:
    """Of the fullest GPU that is shared; one that holds its promise already leaves the rest."""
    late, there = shares("late", main=("a", 8)), shares("there", main=("b", 6))
    pods = [holding("there", part("b", 0, 6))]
    assert gpu_chosen(chosen(3, Unplanned(), late, there, pods=pods)) == "b"
    assert gpu_chosen(chosen(5, Unplanned(), late, there, pods=pods)) == "c"
    assert gpu_chosen(chosen(2, Unplanned(), late, there, pods=pods)) == "a"


def test_stray_gets_nothing_of_a_gpu_that_is_whole() -> None:
    """Neither of one that is promised whole, nor of one that is held."""
    plan, pods = planned("whole", main="a"), [holding("other", {"b"})]
    assert gpu_chosen(chosen(5, Unplanned(), plan, pods=pods)) == "c"
    both = [*pods, holding("third", {"c"})]
    assert chosen(5, Unplanned(), plan, pods=both) == AllocationRefusal(
        "no GPU has 5 GiB left that are promised to no other pod"
    )


def test_stray_is_of_no_class() -> None:
    """It goes to none that a class has, and a pod that adopts to those of its own."""
    prod = shares("prod", main=("a", 2), sharing_class="prod")
    assert gpu_chosen(chosen(3, Unplanned(), prod)) == "b"
    mine, pods = shares("mine", main=("b", 9), sharing_class="prod"), [holding("stray", part("b", 0, 5))]
    assert gpu_chosen(chosen(9, Planned(mine, "main"), prod, mine, pods=pods)) == "c"


def test_stray_makes_no_more_gpus_shared_than_may_be() -> None:
    """It takes what is left of those that are."""
    there = shares("there", main=("b", 6))
    answer = chosen(5, Unplanned(), there, shareable=Shareable(GIB, 1))
    assert answer == AllocationRefusal("no GPU has 5 GiB left that are promised to no other pod")
    assert gpu_chosen(chosen(4, Unplanned(), there, shareable=Shareable(GIB, 1))) == "b"


def test_what_is_promised_to_an_elder_namesake_stays_promised() -> None:
    """Its containers may still run."""
    plan = PodPlan(
        "ml", "p", "uid", {"main": frozenset("b")}, former=frozenset("a"), memory_gib={"main": 2}, former_gib={"a": 9}
    )
    assert isinstance(chosen(10, Unplanned(), plan, pods=[holding("x", {"c"})]), AllocationRefusal)


def test_nobody_knows_who_asks_and_one_of_them_takes_its_own_only() -> None:
    """Then it is better refused than wrong."""
    plan = shares("p", main=("a", 4), exact=True)
    assert isinstance(chosen(4, Unknown("nobody knows", (plan,)), plan), AllocationRefusal)


def test_what_an_init_container_leaves_stays_on_its_gpu() -> None:
    """The kubelet passes its devices on: they are taken, with more of the same GPU."""
    plan, kept = shares("p", main=("b", 6), setup=("b", 2)), part("b", 4, 2)
    ask = Ask(free(), kept, 6)
    answer = choose_share(ask, NOBODY, Planned(plan, "main"), by_key(plan), ALL, FirstCome())
    assert isinstance(answer, Grant)
    assert kept <= {*answer.gpus}
    assert gpu_chosen(answer) == "b"
    both = choose_share(Ask(free(), kept | part("a", 0, 1), 6), NOBODY, Unplanned(), {}, ALL, FirstCome())
    assert isinstance(both, AllocationRefusal)


@pytest.mark.parametrize(
    ("devices", "who", "basis"),
    [
        (part("a", 0, 4), Planned(shares("p", main=("a", 4)), "main"), Basis.PLANNED),
        (part("b", 0, 4), Planned(shares("p", main=("a", 4)), "main"), Basis.ADOPTED),
        (part("b", 0, 4), Unplanned(), Basis.UNPLANNED),
    ],
)
def test_what_the_kubelet_took_is_judged(devices: frozenset[str], who: Identity, basis: Basis) -> None:
    """By the GPU that it is of."""
    plan = shares("p", main=("a", 4))
    answer = accept_share(devices, NOBODY, who, by_key(plan), ALL)
    assert isinstance(answer, Grant)
    assert answer.basis is basis


@pytest.mark.parametrize(
    ("devices", "who", "plans", "pods", "reason"),
    [
        (part("a", 0, 2) | part("b", 0, 2), Unplanned(), [], [], "the kubelet took parts of a, b, and a share is of one GPU"),
        (part("a", 0, 2), Unplanned(), [], [holding("x", part("a", 1, 3))], "the kubelet took a part of a GPU that it lists"),
        (part("b", 0, 4), Planned(shares("p", main=("a", 4), exact=True), "main"), [], [], "promised is one of a"),
        (part("a", 0, 3), Unplanned(), [shares("late", main=("a", 8))], [], "it is promised to other pods"),
        (part("a", 0, 3), Unplanned(), [planned("late", main="a")], [], "has the whole GPU, or is promised it"),
        (part("a", 0, 3), Unplanned(), [], [holding("x", {"a"})], "has the whole GPU, or is promised it"),
        (part("a", 0, 3), Unplanned(), [shares("x", main=("a", 1), sharing_class="prod")], [], "pods of another class"),
        (part("a", 0, 3), Unknown("?", (shares("p", main=("a", 3), exact=True),)), [], [], "takes its own GPUs only"),
    ],
)  # fmt: skip
def test_what_would_rob_somebody_is_refused(
    devices: frozenset[str], who: Identity, plans: list[PodPlan], pods: list[ListedPod], reason: str
) -> None:
    """Each for its own reason."""
    answer = accept_share(devices, pods, who, by_key(*plans), ALL)
    assert isinstance(answer, AllocationRefusal)
    assert reason in answer.reason


def test_ceiling_on_what_a_share_computes_goes_with_it() -> None:
    """Whoever tells the container of its GPU has to know."""
    plan = PodPlan("ml", "p", "u", {"main": frozenset("a")}, memory_gib={"main": 2}, compute_percent=30)
    answer = accept_share(part("a", 0, 2), NOBODY, Planned(plan, "main"), by_key(plan), ALL)
    assert answer == Grant(tuple(share_devices("a", 2)), Basis.PLANNED, 30)
