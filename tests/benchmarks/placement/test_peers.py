"""Each peer's rule against values worked out by hand or stated by its authors."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.placement.baselines import mapa
from benchmarks.placement.baselines.amaral import best_set, communication_cost, distances, utility
from benchmarks.placement.baselines.hami import hami_gpus
from benchmarks.placement.baselines.hived import Hived, lowest_cell
from benchmarks.placement.baselines.koordinator import koordinator_gpus
from benchmarks.placement.baselines.pair_scores import linked_pairs, pair_scores, total
from benchmarks.placement.baselines.vgpu_manager import link_gpus, tier
from benchmarks.placement.cluster import Allotment, Cluster, ServerSpec
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policies import BASELINES, INFORMED, PRODUCT, policy_for_pods
from tests.benchmarks.placement.builders import cluster_of, job
from topology.formats.catalog import machine
from topology.request.gpu_request import Communication

MESH = machine("dgx-1v")


def mask(*positions: int) -> int:
    """Return the positions as a mask."""
    return sum(1 << position for position in positions)


@pytest.mark.parametrize(
    ("free", "gpus", "chosen", "score"),
    [
        (range(8), 1, {7}, 0),
        (range(8), 2, {7, 6}, 250),
        (range(8), 3, {7, 6, 5}, 610),
        (range(8), 4, {7, 6, 5, 4}, 1120),
        (range(1, 8), 1, {3}, 0),
        (range(1, 8), 2, {7, 6}, 250),
        ((1, 2, 4, 7), 2, {7, 4}, 230),
        ((0, 3, 4, 5, 6), 3, {6, 5, 4}, 510),
    ],
)
def test_hami_takes_the_highest_sum_in_visiting_order(free: range, gpus: int, chosen: set[int], score: int) -> None:
    """Check values on the V100 cube mesh of NVIDIA's own test fixture."""
    found = hami_gpus(MESH, mask(*free), gpus)
    assert (set(found), total(pair_scores(MESH), found)) == (chosen, score)


def test_first_fit_of_dra_takes_the_first_devices_of_the_emptiest_node_by_cpu() -> None:
    """GPUs count in no score of kube-scheduler where they are devices, and links do not either."""
    cluster = cluster_of("dgx-1v", "dgx-1v")
    cluster.take(Allotment(0, (0, 3), PodSize(2, cpu_milli=50_000)))
    cluster.take(Allotment(1, (0, 1, 2), PodSize(3)))
    (allotment,) = policy_for_pods("dra-first-fit", [])(cluster, Random(0)).place(job(0, 2)) or ()
    assert (allotment.node, set(allotment.gpus)) == (1, {3, 4})


def test_hami_counts_links_to_an_nvswitch() -> None:
    """There every pair has the same, so the highest positions win."""
    assert set(hami_gpus(machine("hgx-h100"), 0xFF, 4)) == {7, 6, 5, 4}


def test_vgpu_manager_rates_nodes_by_what_is_installed() -> None:
    """A cube mesh hangs together over NVLink, bridged pairs do not beyond two."""
    pairs = machine("a100-pcie-8-pairs")
    assert [tier(MESH, 8), tier(pairs, 2), tier(pairs, 4), tier(pairs, 8)] == [5, 5, 3, 2]


def test_vgpu_manager_sees_an_nvswitch() -> None:
    """All GPUs behind it hang together over NVLink, as on the mesh."""
    assert tier(machine("hgx-h100"), 8) == tier(MESH, 8) == 5


def test_vgpu_manager_gives_a_single_pod_the_weakest_gpu() -> None:
    """With GPU 0 gone, 3 has lost most of its links."""
    assert link_gpus(MESH, mask(*range(1, 8)), 1) == (3,)


def test_vgpu_manager_leaves_the_better_set_behind() -> None:
    """All eight free, two asked: of the 250s it takes one that leaves another."""
    chosen = link_gpus(MESH, 0xFF, 2)
    assert total(pair_scores(MESH), chosen) == 250


def test_koordinator_takes_aligned_partitions_on_hopper() -> None:
    """With GPU 5 gone, two GPUs come from the broken half, and the whole one stays."""
    assert koordinator_gpus(machine("hgx-h100"), 0xFF & ~mask(5), 2) == (6, 7)


def test_koordinator_goes_for_the_deepest_scope_in_use() -> None:
    """One GPU beside the one in use, four from one socket."""
    assert koordinator_gpus(MESH, 0xFF & ~mask(4), 1) == (5,)
    assert koordinator_gpus(MESH, 0xFF & ~mask(0), 4) == (4, 5, 6, 7)


def test_koordinator_packs_if_it_is_set_up_so() -> None:
    """Two nodes, one in use: the default takes the idle one."""
    for name, index in (("koordinator", 0), ("koordinator-most", 1)):
        cluster = cluster_of("dgx-1v", "dgx-1v")
        cluster.take(Allotment(1, (0,), PodSize(1, cpu_milli=8000)))
        placed = policy_for_pods(name, [])(cluster, Random(0)).place(job(0, 2))
        assert placed is not None
        assert placed[0].node == index


def test_linked_pairs_are_those_that_an_administrator_would_write_down() -> None:
    """Double links of the mesh, bridges; none where sockets hold odd numbers or nothing is linked."""
    assert linked_pairs(MESH) == [(0, 3), (1, 2), (4, 7), (5, 6)]
    assert linked_pairs(machine("a100-pcie-8-pairs")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert linked_pairs(machine("ac922-6")) == linked_pairs(machine("l40s-8")) == []


def test_hiveds_cells_may_be_linked_pairs() -> None:
    """Of 0, 2 and 3 free, 2-3 are under one PCIe switch, and 0-3 have the double link."""
    assert lowest_cell(MESH, mask(0, 2, 3), 2) == (2, 3)
    assert lowest_cell(MESH, mask(0, 2, 3), 2, pairs_by_link=True) == (0, 3)


def test_hived_takes_the_lowest_common_cell() -> None:
    """A switch pair before a socket, a socket before the node."""
    assert lowest_cell(MESH, mask(0, 2, 3, 5), 2) == (2, 3)
    assert lowest_cell(MESH, mask(0, 3, 4, 5, 6), 3) == (4, 5, 6)


def test_hived_walks_the_nodes_once_and_packs() -> None:
    """A gang of two pods of four fills the node in use before it opens the idle one."""
    cluster = Cluster([ServerSpec("n", MESH, 0, 0, "V100")] * 2)
    cluster.take(Allotment(1, (0, 1, 2, 3), PodSize(4)))
    placed = Hived(cluster, Random(0)).place(job(0, 4, 4))
    assert placed is not None
    assert [(found.node, found.gpus) for found in placed] == [(1, (4, 5, 6, 7)), (0, (0, 1, 2, 3))]


@pytest.mark.parametrize(
    ("edges", "gb_per_s"),
    [((0, 0, 0), 12.3), ((0, 3, 2), 53.6), ((3, 2, 0), 51.8), ((1, 0, 4), 0.5), ((0, 0, 2), 10.4), ((0, 0, 3), 11.3)],
)
def test_mapas_fit_has_its_published_traps(edges: tuple[int, int, int], gb_per_s: float) -> None:
    """It is not monotone, and rings over PCIe only are worth less than none."""
    assert mapa.effective_gb_per_s(*edges) == pytest.approx(gb_per_s, abs=0.05)


def test_mapa_weighs_links_as_its_own_tables_do() -> None:
    """50 and 25 for double and single links of V100, 20 for links of P100, 10 for PCIe."""
    v100, p100 = mapa.links_of(MESH).weight, mapa.links_of(machine("dgx-1p")).weight
    assert [v100[0][3], v100[0][1], v100[0][7], p100[0][1], p100[0][7]] == [50, 25, 10, 20, 10]


def test_mapa_greedy_takes_the_heaviest_ring() -> None:
    """Four GPUs: 0-3-2-1 has three double links and a single one, 175 in all; no ring has more."""
    assert mapa.links_of(MESH).aggregated(mapa.greedy(MESH, 0xFF, 4)) == 175


def test_mapa_preserve_keeps_a_sensitive_job_off_pcie() -> None:
    """GPUs 0 and 7 have no link: a sensitive pair waits, another one takes them."""
    free = mask(0, 7)
    assert mapa.preserve(MESH, free, 2, sensitive=True) is None
    assert mapa.preserve(MESH, free, 2, sensitive=False) == (0, 7)


def test_mapa_preserve_lets_a_waiting_job_wait() -> None:
    """The policy has no place for it, although two GPUs are free."""
    cluster = cluster_of("dgx-1v")
    cluster.take(Allotment(0, (1, 2, 3, 4, 5, 6), PodSize(6)))
    asking = job(0, 2)
    assert policy_for_pods("mapa-preserve", [])(cluster, Random(0)).place(asking) is None
    assert asking.communication is Communication.HEAVY


def test_mapa_preserve_that_yields_takes_pcie_where_nothing_else_is_free() -> None:
    """A ring on any node goes before, be it on the emptier one."""
    cluster = cluster_of("dgx-1v", "dgx-1v")
    yielding = policy_for_pods("mapa-preserve-yielding", [])(cluster, Random(0))
    cluster.take(Allotment(0, (1, 2, 3, 4, 5, 6), PodSize(6)))
    beside = yielding.place(job(0, 2))
    cluster.take(Allotment(1, (0, 1, 2, 3, 4, 5, 6), PodSize(7)))
    over_pcie = yielding.place(job(1, 2))
    assert beside is not None
    assert over_pcie is not None
    assert [beside[0].node, over_pcie[0].node] == [1, 0]


def test_mapas_own_score_may_choose_the_node() -> None:
    """The fuller node has a single link left, the other one a double link."""
    for name, node in (("mapa-preserve", 0), ("mapa-preserve-fleet", 1)):
        cluster = cluster_of("dgx-1v", "dgx-1v")
        cluster.take(Allotment(0, (2, 3, 4, 5, 6, 7), PodSize(6)))
        cluster.take(Allotment(1, (1, 2, 4, 5, 6), PodSize(5)))
        placed = policy_for_pods(name, [])(cluster, Random(0)).place(job(0, 2))
        assert placed is not None
        assert placed[0].node == node


def test_mapa_topo_aware_stays_in_a_socket() -> None:
    """Three GPUs from the second socket when the first has two, and any three when neither has."""
    assert set(mapa.topo_aware(MESH, mask(0, 1, 4, 5, 6), 3)) == {4, 5, 6}
    assert set(mapa.topo_aware(MESH, mask(0, 1, 4, 5), 3)) == {0, 1, 4}


def test_amarals_costs_on_a_machine_of_two_sockets() -> None:
    """Two GPUs: 19 of 40 across sockets, nothing within; three: 41 is the least there is, and no cost."""
    power = machine("ac922-4")
    costs = [communication_cost(power, chosen) for chosen in ((0,), (0, 1), (1, 2), (0, 1, 2))]
    assert costs == [0.0, 0.0, 19 / 40, 0.0]


def test_amarals_distances_by_links_are_the_same_on_his_machine() -> None:
    """Elsewhere a single link is farther than a double one, and a neighbour in the socket farther than both."""
    power = machine("ac922-4")
    assert distances(power, by_links=True) == distances(power)
    mesh = distances(MESH, by_links=True)
    assert [mesh[0][3], mesh[0][1], mesh[0][7], distances(machine("l40s-8"), by_links=True)[0][1]] == [1, 2, 20, 5]


def test_amarals_utility_is_one_at_best() -> None:
    """Costs at their floor give 1; a pair across sockets 0.2 / (0.475^½ + 0.1)."""
    assert utility(0, 0) == pytest.approx(1.0)
    assert utility(0.475, 0) == pytest.approx(0.2 / (0.475**0.5 + 0.1))
    system, for_job, chosen = best_set(machine("ac922-4"), 0b1111, 2)
    assert chosen == (0, 1)
    assert for_job == pytest.approx(1.0)
    assert system == pytest.approx(3 * 0.01 ** (1 / 3) / (2 * 0.01 ** (1 / 3) + 0.5 ** (1 / 3)))


def test_topo_aware_p_waits_where_topo_aware_settles() -> None:
    """One GPU free in each socket: utility 0.25, too little for a job that wants 0.3."""
    for name, placed in (("topo-aware", True), ("topo-aware-p", False)):
        cluster = cluster_of("ac922-4")
        cluster.take(Allotment(0, (0, 2), PodSize(2)))
        policy = policy_for_pods(name, [])(cluster, Random(0))
        asking = job(0, 2, minimal_utility=0.3)
        assert (policy.place(asking) is not None) is placed


@pytest.mark.parametrize("name", [*BASELINES, *INFORMED])
def test_every_policy_gives_only_what_is_free(name: str) -> None:
    """On a mixed cluster filled to the brim; the cluster itself objects to anything given twice."""
    random = Random(7)
    pods = [PodSize(random.choice([1, 2, 4]), cpu_milli=1000) for _ in range(30)]
    cluster = cluster_of("dgx-1v", "l40s-8", "hgx-h100", "a100-pcie-8-pairs")
    policy = policy_for_pods(name, pods)(cluster, random)
    for number, pod in enumerate(pods):
        for allotment in policy.place(job(number, pod=pod)) or ():
            assert len(allotment.gpus) == len(set(allotment.gpus)) == pod.gpus
            cluster.take(allotment)
    assert cluster.free_gpu_milli < 8000


@pytest.mark.parametrize("name", [*BASELINES, *INFORMED, PRODUCT])
def test_no_policy_minds_a_pod_that_no_machine_is_large_enough_for(name: str) -> None:
    """`inflation` asks about every pod of a trace, however large."""
    pod = PodSize(100)
    assert policy_for_pods(name, [pod])(cluster_of("l40s-4"), Random(0)).place(job(0, pod=pod)) is None
