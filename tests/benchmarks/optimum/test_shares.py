"""The best rule where pods share GPUs, held against the plainest computation there is, and the product beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from benchmarks.optimum import comparison
from benchmarks.optimum.comparison import OPTIMUM, POLICIES_WITH_SHARES, POOLED, Question, RuleOutcome, compare
from benchmarks.optimum.most_pods import MOST_PODS, most_pods
from benchmarks.optimum.process import OPTIMUM_PRECISION, DecisionProcess, Rule
from benchmarks.optimum.rules import pods_that_leave, rule_of, seen_of
from benchmarks.optimum.shared_gpus import SharedGpus
from benchmarks.placement.cluster import Cluster, ServerSpec, ServerState
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.product import Gputopo
from benchmarks.placement.scenarios.link_graph import CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU
from extender.cluster.candidates.shape import Shape, in_steps
from extender.cluster.candidates.shape_index import ShapeIndex
from tests.benchmarks.optimum.brute_force_of_shares import Kind, best_worth_of_shares
from topology.formats.catalog import machine
from topology.placement.shares import SharedGpu, Shares
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.value.coming_back import MANY_PODS
from topology.value.score import Weights, worth

NODE = machine("rtx-3090-2")
SHARE_GIB = 24


def shared_gpus(sizes: tuple[int, ...], gib: tuple[int, ...]) -> SharedGpus:
    return SharedGpus(TopologyClass(NODE), sizes, gib, SHARE_GIB, Weights())


def outcomes(
    machines: int, load: float, mix: dict[int, float], shares: dict[int, float], *policies: str
) -> dict[str, RuleOutcome]:
    question = Question(NODE, machines, load, mix, shares, SHARE_GIB)
    return {found.rule: found for found in compare(question, policies, lambda _: None)}


def erlang_b(servers: int, load: float) -> float:
    lost = 1.0
    for count in range(1, servers + 1):
        lost = load * lost / (count + load * lost)
    return lost


@pytest.mark.parametrize("machines", [1, 2])
def test_shares_of_one_size_are_lost_as_erlang_says(machines: int) -> None:
    """A GPU of 24 GiB is then three places of 8, wherever they are."""
    machine_ = SharedGpus(TopologyClass(NODE), (), (8,), SHARE_GIB, Weights())
    places = 2 * machines * 3
    process = DecisionProcess(machine_.states, machines, [0.8 * places])
    time = process.balance(process.optimum().rule)
    served = process.mean(time, machine_.states.pods[:, 0]) / (0.8 * places)
    assert 1 - served == pytest.approx(erlang_b(places, 0.8 * places), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machines", "whole", "shares"),
    [
        (1, {1: 0.5, 2: 0.4}, {6: 1.7, 12: 0.9}),
        (1, {1: 0.5, 2: 0.4}, {9: 1.1, 15: 0.6}),
        (2, {1: 0.6, 2: 0.5}, {12: 1.6}),
    ],
)
def test_it_is_what_brute_force_finds(machines: int, whole: dict[int, float], shares: dict[int, float]) -> None:
    """That tells every GPU from every other, keeps no states together, and shares no line with what it checks."""
    found = shared_gpus((*whole,), (*shares,))
    best = DecisionProcess(found.states, machines, [*whole.values(), *shares.values()]).optimum()
    weights = Weights()
    bandwidth, *_ = found.topology_class.predict(0b11)
    worths = {1: worth(1, None, weights), 2: worth(2, bandwidth, weights)}
    kinds = [Kind(rate, worths[size], size) for size, rate in whole.items()]
    kinds += [Kind(rate, worths[1] * gib / SHARE_GIB, 1, gib) for gib, rate in shares.items()]
    expected = best_worth_of_shares(machines, SHARE_GIB, kinds, 150)
    assert best.least - 1e-4 <= expected <= best.most + 1e-4
    assert best.most - best.least <= OPTIMUM_PRECISION * best.most


@pytest.mark.slow
def test_no_rule_does_better_and_the_best_one_does_what_was_promised() -> None:
    """Neither the product nor a peer passes the bound, and the best rule, followed, reaches it."""
    found = outcomes(2, 0.82, {1: 0.2, 2: 0.2}, {6: 0.35, 12: 0.25}, *POLICIES_WITH_SHARES)
    below = {name: each.below_optimum for name, each in found.items() if name != POOLED}
    assert below.pop(OPTIMUM) == pytest.approx(0.0, abs=2 * OPTIMUM_PRECISION)
    assert all(each is not None and each > 2 * OPTIMUM_PRECISION for each in below.values())


@pytest.fixture(scope="module")
def rules() -> dict[object, Rule]:
    """Keep what policies do on one sort of machines: it depends on the mix of pods, and not on how many come."""
    return {}


@pytest.fixture(autouse=True)
def _rules_are_kept(rules: dict[object, Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(policy: str, found: SharedGpus, machines: int, kinds: Sequence[PodSize], pods: Sequence[PodSize]) -> Rule:
        question = (policy, found.topology_class.node, machines, tuple(kinds), tuple(pods))
        if question not in rules:
            rules[question] = rule_of(policy, found, machines, kinds, pods)
        return rules[question]

    monkeypatch.setattr(comparison, "rule_of", kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machines", "load", "bound"), [(1, 0.82, 0.0002), (2, 0.82, 0.004), (2, 0.6, 0.002), (2, 1.0, 0.006)]
)
def test_the_product_stays_near_the_best(machines: int, load: float, bound: float) -> None:
    """Of quarters and halves beside whole GPUs; with more shares it does not, as the page says."""
    found = outcomes(machines, load, {1: 0.2, 2: 0.2}, {6: 0.35, 12: 0.25}, "gputopo-told")["gputopo-told"]
    assert found.below_optimum is not None and found.below_optimum < bound


@pytest.mark.parametrize("policy", POLICIES_WITH_SHARES)
def test_every_rule_serves_whatever_fits(policy: str) -> None:
    """So all are among those that the best one is the best of; and what a rule does is one pod more."""
    question = Question(NODE, 1, 0.82, {1: 0.2, 2: 0.2}, {6: 0.35, 12: 0.25}, SHARE_GIB)
    found = shared_gpus((1, 2), (6, 12))
    pods = found.states.pods
    rule = (
        most_pods(found, 1, question.kinds)
        if policy == MOST_PODS
        else rule_of(policy, found, 1, question.kinds, question.pods)
    )
    for place, choices in enumerate(rule):
        for _, after in choices:
            for state, leads in enumerate(after.ravel()):
                fits = len(found.states.moves[place][state]) > 0
                assert (pods[leads] - pods[state]).tolist() == [float(fits and kind == place) for kind in range(4)]


@pytest.mark.slow
def test_the_product_knows_the_mix_that_comes() -> None:
    """Ten pods are too few to learn from, and it decides otherwise then."""
    question = Question(NODE, 2, 0.82, {1: 0.2, 2: 0.2}, {6: 0.35, 12: 0.25}, SHARE_GIB)
    found = shared_gpus((1, 2), (6, 12))
    told, untold = (rule_of("gputopo", found, 2, question.kinds, pods) for pods in (question.pods, question.pods[:10]))
    assert any((a[0][1] != b[0][1]).any() for a, b in zip(told, untold, strict=True))


@pytest.mark.slow
def test_what_will_be_free_counts_for_more_than_what_is() -> None:
    """Where most pods share, a rule that counts the pods of a machine and nothing else is nearer to the best than the product."""
    found = outcomes(2, 0.82, {1: 0.1, 2: 0.1}, {6: 0.5, 12: 0.3}, "gputopo-told", "fgd", MOST_PODS)
    below = [found[rule].below_optimum or 0 for rule in (MOST_PODS, "gputopo-told", "fgd")]
    assert below == sorted(below)
    assert below[1] < 0.015


@pytest.mark.slow
def test_pooled_gpus_lose_less_of_what_needs_two() -> None:
    """Where everything is one GPU no pod is between others."""
    found = outcomes(2, 0.82, {1: 0.2, 2: 0.2}, {6: 0.35, 12: 0.25})
    assert found[POOLED].lost[2] < found[OPTIMUM].lost[2]
    assert found[POOLED].shares_lost.keys() == {6, 12}


def shape_of(node: ServerState, topology_class: TopologyClass) -> Shape:
    """Return what the extender sees of such a node, in whole GiB."""
    pods = Counter(position for each in node.allotments if each.pod.shares for position in each.gpus)
    left = [(position, node.gpu_milli[position] * SHARE_GIB // 1000) for position in sorted(pods)]
    shared = tuple(SharedGpu(position, gib, pods=min(pods[position], MANY_PODS)) for position, gib in left)
    shares = Shares((SHARE_GIB,) * len(node.gpu_milli), shared, node.free)
    return Shape(topology_class, node.free, cpu_milli=in_steps(node.cpu_milli), shares=shares)


def answer_of(index: ShapeIndex, request: GpuRequest) -> tuple[int, tuple[int, ...]] | None:
    """Return the node that the extender puts first, and the GPUs there."""
    order = index.order(request)
    for *_, name in order.best_first(("0", "1")):
        bucket = index.bucket_of(name)
        verdict = order.verdicts[bucket.serial] if bucket else None
        assert isinstance(verdict, Placement)
        return int(name), verdict.gpus
    return None


@pytest.mark.slow
def test_the_product_here_is_the_extenders_own_order() -> None:
    """Asked in whole GiB, its index of nodes gives the rule's node and GPUs, whatever is left of both, by whomever."""
    question = Question(NODE, 2, 0.82, {1: 0.2, 2: 0.2}, {6: 0.35, 12: 0.25}, SHARE_GIB)
    cluster = Cluster([ServerSpec("node", NODE, 2 * CPU_MILLI_PER_GPU, 2 * MEMORY_MIB_PER_GPU)] * 2)
    rule = policy_for_pods("gputopo-told", question.pods)(cluster, Random(0))
    assert isinstance(rule, Gputopo)
    for number, pod in enumerate(question.pods):
        rule.place(Job(number, 0.0, 1.0, (pod,)))
    index, asked = ShapeIndex(), 0
    typical = [
        (replace(kind, memory_gib=kind.memory_gib * SHARE_GIB // 1000), share) for kind, share in rule.values.typical
    ]
    for looks in product(dict.fromkeys(seen_of(shared_gpus((1, 2), (6, 12)))), repeat=2):
        used = [allotment for at, seen in enumerate(looks) for allotment in pods_that_leave(at, seen)]
        for allotment in used:
            cluster.take(allotment)
        for node in cluster.nodes:
            index.put(str(node.index), shape_of(node, rule.classes[node.index]))
        index.forget_verdicts(typical)
        for pod, gib in zip(question.kinds, (0, 0, 6, 12), strict=True):
            said = GpuRequest(0, memory_gib=(gib,)) if gib else GpuRequest.plain(pod.gpus)
            found = rule.choose(pod, Job(0, 0.0, 1.0, (pod,)))
            expected = answer_of(index, replace(said, cpu_milli=pod.cpu_milli))
            assert (found and (found.node, found.gpus)) == expected, (looks, gib or pod.gpus)
            asked += 1
        for allotment in used:
            cluster.give_back(allotment)
    assert asked > 500
