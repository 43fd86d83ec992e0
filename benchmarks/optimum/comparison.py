"""The best rule, beside it what policies do on the same states, and all GPUs in one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.optimum.most_pods import MOST_PODS, most_pods
from benchmarks.optimum.pooled import lost_when_pooled
from benchmarks.optimum.process import DecisionProcess
from benchmarks.optimum.rules import pod_of, rule_of
from benchmarks.optimum.shared_gpus import SharedGpus
from benchmarks.optimum.states import Numbers
from benchmarks.optimum.whole_gpus import WholeGpus
from benchmarks.placement.jobs import PodSize
from topology.node.model import NodeTopology
from topology.placement.topology_class import TopologyClass
from topology.value.fragmentation import WHOLE_GPU_MILLI
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
POLICIES_WITH_SHARES = (
    "gputopo-told",
    "fgd",
    "gpu-packing",
    "best-fit",
    "stock-most",
    "hami-binpack",
    "stock-least",
    MOST_PODS,
)
"""The same where pods share GPUs; `gputopo-told` and `fgd` know the mix."""
OPTIMUM, POOLED = "optimum", "pooled"
PODS_TOLD = 1_000
"""In which pods of each size come as often as they will, for policies that are told beforehand."""


@dataclass(frozen=True, slots=True)
class RuleOutcome:
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
    shares_lost: Mapping[int, float] = field(default_factory=dict)
    """Of the pods that share a GPU, by GiB, those that find no place."""


@dataclass(frozen=True, slots=True)
class Question:
    """Machines alike, and the pods that come to them."""

    node: NodeTopology
    machines: int
    load: float
    """GPUs asked for on average, over those that there are."""
    mix: Mapping[int, float]
    """Share of pods by GPUs asked for."""
    shares: Mapping[int, float] = field(default_factory=dict)
    """The same of pods that share one, by GiB; each a whole number of thousandths of a GPU, in which policies count."""
    share_gib: int = 1
    """What all shares of a GPU may take together."""

    @property
    def rates(self) -> list[float]:
        """Pods of each kind that come in the mean time that one runs: those of whole GPUs, then those that share one."""
        per_pod = sum(size * share for size, share in self.mix.items())
        per_pod += sum(gib / self.share_gib * share for gib, share in self.shares.items())
        often = self.load * self.machines * len(self.node) / per_pod
        return [often * share for share in (*self.mix.values(), *self.shares.values())]

    @property
    def kinds(self) -> list[PodSize]:
        """One pod of each kind."""
        parts = [pod_of(1, gib * WHOLE_GPU_MILLI // self.share_gib) for gib in self.shares]
        return [*(pod_of(size) for size in self.mix), *parts]

    @property
    def pods(self) -> list[PodSize]:
        """Pods as often as they come, those of one kind spread evenly."""
        told = [round(PODS_TOLD * share) for share in (*self.mix.values(), *self.shares.values())]
        places = [((turn + 0.5) / often, place) for place, often in enumerate(told) for turn in range(often)]
        return [self.kinds[place] for _, place in sorted(places)]


def compare(question: Question, policies: Sequence[str], progress: Callable[[str], None]) -> Iterator[RuleOutcome]:
    """Find the best rule, then look at each policy; raises `TooManyStates`, `UnknownPolicy`."""
    machine = _machine(question)
    states = machine.states
    process = DecisionProcess(states, question.machines, question.rates)
    progress(f"{len(states):,} states of one machine; looking for the best rule")
    best = process.optimum()
    time, pods = None, question.pods
    for name in (OPTIMUM, *policies):
        progress(f"following {name}")
        if name == OPTIMUM:
            rule = best.rule
        elif name == MOST_PODS:
            rule = most_pods(machine, question.machines, question.kinds)
        else:
            rule = rule_of(name, machine, question.machines, question.kinds, pods)
        found = process.balance(rule, time)
        time = found if time is None else time
        yield outcome_of(name, question, process, found, best.most)
    yield pooled(question)


def outcome_of(
    name: str, question: Question, process: DecisionProcess, shares: Numbers, most: float, cost: float = 0.0
) -> RuleOutcome:
    """Return what a rule does that is in each state for such a share of the time.

    Args:
        name: Of the rule.
        question: The machines, and the pods that come to them.
        process: The same as a process.
        shares: Of the time, by state of all machines.
        most: What the best rule earns.
        cost: What moves cost on average over time.

    """
    states, sizes, gib = process.states, [*question.mix], [*question.shares]
    worth = process.mean(shares, states.worth) - cost
    held = [process.mean(shares, of_kind) for of_kind in states.pods.T]
    linked = [process.mean(shares, states.cliques[:, place]) for place in range(len(sizes))]
    lost = [max(0.0, 1 - mean / rate) for mean, rate in zip(held, question.rates, strict=True)]
    return RuleOutcome(
        name,
        worth,
        max(0.0, 1 - worth / most),
        dict(zip(sizes, lost, strict=False)),
        {size: of / mean for size, mean, of in zip(sizes, held, linked, strict=False) if size > 1 and mean},
        dict(zip(gib, lost[len(sizes) :], strict=True)),
    )


def pooled(question: Question) -> RuleOutcome:
    """Return what is lost if all GPUs are in one machine where every set is as good as any."""
    sizes, gib, unit = [*question.mix], [*question.shares], question.share_gib
    asked = [*(size * unit for size in sizes), *gib]
    lost = lost_when_pooled(question.machines * len(question.node) * unit, asked, question.rates)
    return RuleOutcome(
        POOLED, None, None, dict(zip(sizes, lost, strict=False)), {}, dict(zip(gib, lost[len(sizes) :], strict=True))
    )


def _machine(question: Question) -> WholeGpus | SharedGpus:
    weights = Weights()
    topology_class, sizes = TopologyClass(question.node, weights), [*question.mix]
    if question.shares:
        return SharedGpus(topology_class, sizes, [*question.shares], question.share_gib, weights)
    return WholeGpus(topology_class, sizes, weights)
