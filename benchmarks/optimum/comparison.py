"""The best rule, beside it what policies do on the same states, and all GPUs in one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.optimum.pooled import lost_when_pooled
from benchmarks.optimum.process import Process
from benchmarks.optimum.rules import pod_of, rule_of
from benchmarks.optimum.whole_gpus import WholeGpus
from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights

POLICIES = (
    "gputopo-told",
    "stock-most",
    "stock-least",
    "hami-binpack",
    "vgpu-manager",
    "koordinator-most",
    "hived-links",
)
"""What is compared unless others are named; `gputopo-told` knows the mix, which the product learns from the pods it meets."""
OPTIMUM, POOLED = "optimum", "pooled"
PODS_TOLD = 1_000
"""In which pods of each size come as often as they will, for policies that are told beforehand."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule does in the long run."""

    rule: str
    worth: float | None
    """Of the pods that run, on average over time, in the product's measure; `None` where sets are not told apart."""
    below_optimum: float | None
    """How much less that is than the best, of the best."""
    lost: Mapping[int, float]
    """Of the pods of each size, those that find no place."""
    cliques: Mapping[int, float]
    """Of those that run with several GPUs, those with an NVLink between every two of them."""


@dataclass(frozen=True, slots=True)
class Question:
    """Machines alike, and the pods that come to them."""

    node: NodeTopology
    machines: int
    load: float
    """GPUs asked for on average, over those that there are."""
    mix: Mapping[int, float]
    """Share of pods by GPUs asked for."""

    @property
    def rates(self) -> list[float]:
        """Pods of each size that come in the mean time that one runs."""
        per_pod = sum(size * share for size, share in self.mix.items())
        return [self.load * self.machines * len(self.node) / per_pod * share for share in self.mix.values()]


def compare(question: Question, policies: Sequence[str], progress: Callable[[str], None]) -> Iterator[Outcome]:
    """Find the best rule, then look at each policy; raises `TooManyStates`, `UnknownPolicy`."""
    weights = Weights()
    sizes = [*question.mix]
    machine = WholeGpus(TopologyClass(question.node, weights), sizes, weights)
    states = machine.states
    process = Process(states, question.machines, question.rates)
    progress(f"{len(states):,} states of one machine; looking for the best rule")
    best = process.optimum()
    shares = None
    pods = [pod_of(size) for size, share in question.mix.items() for _ in range(round(PODS_TOLD * share))]
    for name in (OPTIMUM, *policies):
        progress(f"following {name}")
        rule = best.rule if name == OPTIMUM else rule_of(name, machine, question.machines, pods)
        time = process.balance(rule, shares)
        shares = time if shares is None else shares
        worth = process.mean(time, states.worth)
        held = [process.mean(time, states.pods[:, place]) for place in range(len(sizes))]
        linked = [process.mean(time, states.cliques[:, place]) for place in range(len(sizes))]
        yield Outcome(
            name,
            worth,
            max(0.0, 1 - worth / best.most),
            {size: max(0.0, 1 - mean / rate) for size, mean, rate in zip(sizes, held, question.rates, strict=True)},
            {size: of / mean for size, mean, of in zip(sizes, held, linked, strict=True) if size > 1 and mean},
        )
    lost = lost_when_pooled(question.machines * len(question.node), sizes, question.rates)
    yield Outcome(POOLED, None, None, dict(zip(sizes, lost, strict=True)), {})
