"""The plan: exact against brute force, deterministic, and honest about why nothing fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from random import Random

import pytest

from topology.bandwidth.rings import members_of
from topology.effort import finish
from topology.formats.catalog import MACHINES, machine
from topology.node.links import Affinity, PciePath
from topology.node.model import Gpu, Link, Nic, NodeTopology
from topology.placement.plan import plan
from topology.placement.topology_class import TopologyClass
from topology.placement.topology_classes import TopologyClasses
from topology.placement.verdict import Placement, Reason, Rejection
from topology.request.gpu_request import Communication, GpuRequest, NicAffinity
from topology.value.score import Weights

WANTED = (None, Affinity.NVLINK, Affinity.PCIE_SWITCH, Affinity.NUMA_NODE)


def heavy(gpus: int, **more: object) -> GpuRequest:
    return replace(GpuRequest(gpus, preferred=Affinity.NVLINK), **more)  # type: ignore[arg-type]


def brute_force_gb_per_s(compiled: TopologyClass, free: int, gpus: int, required: Affinity | None) -> float | None:
    """Look at every single set, interchangeable or not."""
    masks = (sum(1 << i for i in chosen) for chosen in combinations(members_of(free), gpus))
    found = (compiled.predict(mask) for mask in masks)
    return max((bandwidth.point for bandwidth, near in found if required is None or near.meets(required)), default=None)


def assert_exact(compiled: TopologyClass, free: int, gpus: int, required: Affinity | None) -> None:
    best = brute_force_gb_per_s(compiled, free, gpus, required)
    found = plan(compiled, free, heavy(gpus, required=required))
    if best is None:
        assert isinstance(found, Rejection)
    else:
        assert isinstance(found, Placement) and found.bandwidth is not None and found.affinity is not None
        assert found.bandwidth.point == best
        assert len(set(found.gpus)) == gpus and sum(1 << i for i in found.gpus) & ~free == 0
        assert required is None or found.affinity.meets(required)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MACHINES if len(machine(name)) <= 8])
def test_the_search_equals_brute_force_for_every_free_mask_and_size(name: str) -> None:
    """Every reference machine of up to eight GPUs, every free set, every size, every required affinity."""
    compiled = TopologyClass(machine(name))
    for free in range(1 << len(machine(name))):
        for gpus in range(2, free.bit_count() + 1):
            for required in WANTED:
                assert_exact(compiled, free, gpus, required)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MACHINES if len(machine(name)) > 8])
def test_the_search_equals_brute_force_on_samples_of_larger_machines(name: str) -> None:
    """Sixteen GPUs: free sets and sizes drawn with a fixed seed."""
    compiled, random = TopologyClass(machine(name)), Random(1)
    for _ in range(25):
        free = random.getrandbits(len(machine(name)))
        for gpus in (2, 3, 4, 6, 8):
            if free.bit_count() >= gpus:
                assert_exact(compiled, free, gpus, random.choice(WANTED))


def test_takes_the_clique_and_not_four_neighbours_by_number() -> None:
    """With 2 to 7 free on a DGX-1V the best four are 4-7, which are a clique, and not 2-5."""
    found = plan(TopologyClass(machine("dgx-1v")), 0b11111100, heavy(4))
    assert isinstance(found, Placement) and sorted(found.gpus) == [4, 5, 6, 7]


def test_gpus_come_in_ring_order() -> None:
    """Neighbours in the answer are joined by the fastest links, the last with the first too."""
    node = machine("dgx-1v")
    found = plan(TopologyClass(node), 0xFF, heavy(8))
    assert isinstance(found, Placement)
    assert all(node.nvlinks(i, j) for i, j in zip(found.gpus, (*found.gpus[1:], found.gpus[0]), strict=True))


def test_a_single_gpu_is_taken_where_it_hurts_least() -> None:
    """On bridged pairs with one half pair free, a one-GPU pod takes the half and leaves the pairs whole."""
    found = plan(
        TopologyClass(machine("a100-pcie-8-pairs")), 0b11111011, GpuRequest(1, communication=Communication.NONE)
    )
    assert isinstance(found, Placement) and found.gpus == (3,)


def test_a_silent_pod_leaves_the_links_to_others() -> None:
    """Two GPUs that will not talk are taken from two broken pairs."""
    free = 0b11110101
    found = plan(TopologyClass(machine("a100-pcie-8-pairs")), free, heavy(2, communication=Communication.NONE))
    assert isinstance(found, Placement) and set(found.gpus) == {0, 2}


def test_equal_sets_go_to_the_lowest_positions() -> None:
    """On an NVSwitch all sets are alike."""
    found = plan(TopologyClass(machine("hgx-h100")), 0xFF, heavy(2))
    assert isinstance(found, Placement) and found.gpus == (0, 1)


def test_among_equally_fast_sets_the_one_that_leaves_more_wins() -> None:
    """With 0, 1, 3 and 4 free on a DGX-1V, 0-3 and 0-4 are equally fast; taking 0-4 leaves 1-3 joined, 0-3 leaves 1-4 apart."""
    found = plan(TopologyClass(machine("dgx-1v")), 0b11011, heavy(2))
    assert isinstance(found, Placement) and found.gpus == (0, 4)


def test_the_same_question_has_the_same_answer_object() -> None:
    """A repeated decision is a table look-up."""
    compiled = TopologyClass(machine("dgx-1v"))
    assert plan(compiled, 0b1111, heavy(4)) is plan(compiled, 0b1111, heavy(4))


MESHES = (("dgx-1v", "a"), ("dgx-1v", "b"), ("dgx-1v-dead-link", "c"))


def test_nodes_wired_alike_share_one_class() -> None:
    """UUIDs and addresses make no difference; a missing link does."""
    classes = TopologyClasses()
    whole, same, broken = (classes.of(machine(*named)) for named in MESHES)
    assert whole is same is not broken
    assert len(classes) == 2


def test_a_class_that_no_node_has_any_more_is_forgotten() -> None:
    """A node that publishes something else every second leaves nothing behind."""
    classes = TopologyClasses()
    kept = classes.of(machine("dgx-1v"))
    classes.of(machine("dgx-1v-dead-link"))
    assert [*classes] == [kept]


@pytest.mark.parametrize(
    ("name", "free", "request_", "reason", "message"),
    [
        ("dgx-1v", 0b0111, heavy(4), Reason.TOO_FEW_FREE, "fewer than 4 suitable GPUs are free: 3 of 8 are free, pod needs 4"),
        ("l40s-8", 0xFF, heavy(4, required=Affinity.NVLINK), Reason.AFFINITY,
         "no 4 free GPUs share an NVLink ring: no two do"),
        ("dgx-1v", 0b10011100, heavy(4, required=Affinity.NVLINK), Reason.AFFINITY,
         "no 4 free GPUs share an NVLink ring: at most 2 do"),
        ("l40s-8", 0xFF, heavy(4, min_bandwidth_gb_per_s=200.0), Reason.BANDWIDTH,
         "no 4 free GPUs are predicted to reach 200 GB/s: the best reach "),
        ("t4-4", 0b1111, heavy(2, models=("*h100*",)), Reason.UNSUITABLE_GPUS,
         "none of the node's GPUs match gpu-model: 0 of 4, pod needs 2; they are Tesla T4"),
        ("t4-4", 0b1111, heavy(2, min_driver=(535,)), Reason.DRIVER, "GPU driver is older than min-driver: it has "),
        ("t4-4", 0b1111, heavy(2, nic=NicAffinity.REQUIRED), Reason.NIC, "RDMA NIC"),
    ],
)  # fmt: skip
def test_says_why_nothing_fits(name: str, free: int, request_: GpuRequest, reason: Reason, message: str) -> None:
    """One useful number, no names, and a word that metrics can count."""
    found = plan(TopologyClass(machine(name)), free, request_)
    assert isinstance(found, Rejection)
    assert found.reason is reason and message in found.on_this_node


@pytest.mark.parametrize(
    ("models", "remedy"),
    [
        (("h100",), "gpu-model has globs: did you mean *h100*?"),
        (("a100", "h100*"), "gpu-model has globs: did you mean *h100*?"),
        (("*a100*",), "widen gpu-model or add such nodes"),
        (("*h100*",), "widen gpu-model or add such nodes"),
    ],
)
def test_a_part_of_a_model_is_answered_with_the_glob_that_matches(models: tuple[str, ...], remedy: str) -> None:
    """But not where no glob would match, or where the glob matches too few GPUs."""
    node = machine("hgx-h100")
    mixed = replace(node, gpus=(node.gpus[0], *(replace(gpu, model="Tesla T4") for gpu in node.gpus[1:])))
    verdict = plan(TopologyClass(mixed), 0xFF, heavy(2, models=models))
    assert isinstance(verdict, Rejection)
    assert verdict.remedy == remedy


def test_only_what_pods_hold_can_be_freed_by_removing_pods() -> None:
    """Busy GPUs come back; a wrong model or driver does not."""
    compiled = TopologyClass(machine("dgx-1v"))
    busy, wrong = plan(compiled, 0b1, heavy(4)), plan(compiled, 0xFF, heavy(4, models=("*h100*",)))
    assert isinstance(busy, Rejection) and busy.resolvable
    assert isinstance(wrong, Rejection) and not wrong.resolvable


def test_mig_gpus_are_not_handed_out_whole() -> None:
    """A GPU in MIG mode is no whole GPU."""
    node = machine("hgx-h100")
    mixed = replace(node, gpus=(replace(node.gpus[0], mig_enabled=True), *node.gpus[1:]))
    found = plan(TopologyClass(mixed), 0xFF, heavy(2))
    assert isinstance(found, Placement) and 0 not in found.gpus


def test_unknown_properties_do_not_satisfy_a_demand() -> None:
    """What NVML did not say is not taken for good."""
    node = NodeTopology((Gpu(0, "a", "x"), Gpu(1, "b", "x", memory_bytes=2**36)))
    found = plan(TopologyClass(node), 0b11, GpuRequest(1, min_memory_bytes=2**35))
    assert isinstance(found, Placement) and found.gpus == (1,)


def test_a_preferred_nic_breaks_ties() -> None:
    """Among equally fast sets the one with more near NICs wins."""
    node = machine("l40s-8")
    nic = Nic("mlx5_0", paths=((6, PciePath.PIX), (7, PciePath.PIX)))
    found = plan(TopologyClass(replace(node, nics=(nic,))), 0xFF, heavy(2, nic=NicAffinity.PREFERRED))
    assert isinstance(found, Placement) and set(found.gpus) == {6, 7}


def test_a_nic_tells_gpus_apart_that_are_alike_otherwise() -> None:
    """On an NVSwitch any GPU stands for all, but not for the one with the NIC that is asked for."""
    nic = Nic("mlx5_0", paths=((7, PciePath.PIX),))
    found = plan(
        TopologyClass(replace(machine("hgx-h100"), nics=(nic,))), 0xFF, GpuRequest(1, nic=NicAffinity.PREFERRED)
    )
    assert isinstance(found, Placement) and found.gpus == (7,)


def test_of_equal_sets_the_one_in_the_fewest_numa_nodes_is_taken() -> None:
    """All sets behind an NVSwitch are alike, but for the CPU memory that they are near."""
    compiled = TopologyClass(machine("hgx-h100"))
    sockets = 0x0F, 0xF0
    for free, gpus in product(range(1 << 8), (1, 2, 3, 4, 6)):
        found = plan(compiled, free, heavy(gpus))
        if isinstance(found, Placement):
            touched = sum(any(socket >> i & 1 for i in found.gpus) for socket in sockets)
            assert touched == (1 if any((free & socket).bit_count() >= gpus for socket in sockets) else 2)


def test_a_numa_node_is_not_broken_while_another_is() -> None:
    """Two of 0-3 and 6, 7 are the last two; one is the last one."""
    compiled = TopologyClass(machine("hgx-h100"))
    for free, gpus in ((0b1100_1111, (6, 7)), (0b1000_1111, (7,))):
        found = plan(compiled, free, heavy(len(gpus)))
        assert isinstance(found, Placement) and found.gpus == gpus


def test_a_fuller_node_scores_higher_for_the_same_bandwidth() -> None:
    """Four of exactly four free GPUs cost the future less than four of eight."""
    compiled = TopologyClass(machine("hgx-h100"))
    fuller, emptier = plan(compiled, 0x0F, heavy(4)), plan(compiled, 0xFF, heavy(4))
    assert isinstance(fuller, Placement) and isinstance(emptier, Placement)
    assert fuller.score > emptier.score


def test_links_outrank_the_pods_to_come_for_a_talking_pod() -> None:
    """An empty NVSwitch node beats an empty PCIe box for a pod that communicates, and loses for one that does not."""
    fast, slow = TopologyClass(machine("hgx-h100")), TopologyClass(machine("l40s-8"))
    scores = {
        quiet: [plan(compiled, 0xFF, heavy(4, communication=quiet)) for compiled in (fast, slow)]
        for quiet in (Communication.HEAVY, Communication.NONE)
    }
    on_fast, on_slow = scores[Communication.HEAVY]
    assert isinstance(on_fast, Placement) and isinstance(on_slow, Placement) and on_fast.score > on_slow.score
    on_fast, on_slow = scores[Communication.NONE]
    assert isinstance(on_fast, Placement) and isinstance(on_slow, Placement) and on_fast.score < on_slow.score


@pytest.mark.parametrize(
    ("name", "gpus", "preferred"),
    [
        ("dgx-1v", 2, Affinity.NVLINK),
        ("dgx-1v", 4, Affinity.NVLINK),
        ("a100-pcie-8-pairs", 2, Affinity.NVLINK),
        ("l40s-8", 2, Affinity.PCIE_SWITCH),
        ("l40s-8", 4, Affinity.NUMA_NODE),
    ],
)
def test_a_preference_is_met_wherever_some_node_can(name: str, gpus: int, preferred: Affinity) -> None:
    """Even if it takes a whole node, and a broken one has GPUs that nobody would miss; for the mix believed in at first."""
    compiled = TopologyClass(machine(name))
    finish(compiled.appraise(Weights()))
    met: dict[bool, list[float]] = {True: [], False: []}
    for free in range(1 << len(machine(name))):
        found = plan(compiled, free, heavy(gpus, preferred=preferred))
        if isinstance(found, Placement) and found.affinity:
            met[found.affinity.meets(preferred)].append(found.score)
    assert min(met[True]) > max(met[False])


def test_at_lambda_zero_only_this_pod_counts() -> None:
    """λ = 0: full and empty nodes with the same links score the same."""
    compiled = TopologyClass(machine("hgx-h100"), Weights(pods_to_come=0.0))
    one, other = plan(compiled, 0x0F, heavy(4)), plan(compiled, 0xFF, heavy(4))
    assert isinstance(one, Placement) and isinstance(other, Placement) and one.score == other.score


@pytest.mark.parametrize("name", MACHINES)
def test_more_free_gpus_are_worth_more(name: str) -> None:
    """Value never falls when a GPU comes back, for the prefixes of every machine."""
    compiled = TopologyClass(machine(name))
    worth = [compiled.value((1 << count) - 1) for count in range(len(machine(name)) + 1)]
    assert worth == sorted(worth) and worth[0] == 0


def test_a_forged_mesh_costs_a_bounded_search() -> None:
    """Sixteen GPUs, two links between any two: no machine is like that, and its plan must not stop the process."""
    gpus = tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(16))
    mesh = NodeTopology(gpus, tuple(Link(a, b, nvlinks=2) for a, b in combinations(range(16), 2)))
    assert isinstance(plan(TopologyClass(mesh), 0xFFFF, heavy(3)), Placement)


@pytest.mark.slow
def test_many_gpus_without_any_two_alike_cost_a_bounded_search() -> None:
    """Sixty-four GPUs have four thousand million sets of eight; a few that grow from each GPU are looked at."""
    node = NodeTopology(tuple(Gpu(i, f"u{i}", "x", memory_bytes=2**34 + i) for i in range(64)))
    assert isinstance(plan(TopologyClass(node), (1 << 64) - 1, heavy(8)), Placement)


def test_remembered_plans_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users can write as many different requests as they like."""
    monkeypatch.setattr("topology.placement.topology_class.MAX_ANSWERS", 10)
    compiled = TopologyClass(machine("t4-4"))
    first = plan(compiled, 0b1111, heavy(2, min_bandwidth_gb_per_s=0.5))
    for number in range(20):
        plan(compiled, 0b1111, heavy(2, min_bandwidth_gb_per_s=1.0 + number / 100))
    again = plan(compiled, 0b1111, heavy(2, min_bandwidth_gb_per_s=0.5))
    assert again == first
    assert again is not first


def test_remembered_values_of_free_sets_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of seventy-two GPUs has more free sets than it will ever see twice."""
    compiled, fresh = TopologyClass(machine("dgx-1v")), TopologyClass(machine("dgx-1v"))
    monkeypatch.setattr("topology.placement.topology_class.MAX_ANSWERS", 10)
    values = [compiled.value(free) for free in range(256)]
    assert max(len(compiled._values), len(compiled._predictions), len(compiled._best_sets)) <= 10
    monkeypatch.undo()
    assert values == [fresh.value(free) for free in range(256)]
