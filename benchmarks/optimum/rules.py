"""What a policy of the benchmark does on one or two machines, asked once for every two free sets.

So it has to decide by the free GPUs alone. Where it draws lots each outcome counts with its chance. It sees one of all free sets
that are alike, so ties that it breaks by position are broken there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import lcm
from random import Random
from typing import TypeVar

import numpy as np

from benchmarks.optimum.process import Rule
from benchmarks.optimum.states import Indexes
from benchmarks.optimum.whole_gpus import WholeGpus
from benchmarks.placement.cluster import Allotment, Cluster, Server
from benchmarks.placement.jobs import Job, Pod
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.policy import PodByPod, Policy
from benchmarks.placement.scenarios.link_graph import CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU
from topology.bandwidth.rings import members_of

T = TypeVar("T")

Choice = tuple[int, int] | None
"""Machine, and GPUs as a mask; `None`: refused."""


def rule_of(policy: str, machine: WholeGpus, machines: int, pods: Sequence[Pod]) -> Rule:
    """Return what the policy of that name does in every state; `pods` are such as come, as often as they come."""
    node = machine.topology_class.node
    size = len(node)
    cluster = Cluster([Server("node", node, size * CPU_MILLI_PER_GPU, size * MEMORY_MIB_PER_GPU)] * machines)
    lots = _Lots()
    asked = policy_for_pods(policy, pods)(cluster, lots)
    views = [*dict.fromkeys(machine.free)]
    choices: list[dict[tuple[int, ...], list[Choice]]] = [{} for _ in machine.sizes]
    for frees in product(views, repeat=machines):
        used = [
            Allotment(at, members_of(((1 << size) - 1) & ~free), pod_of(size - free.bit_count()))
            for at, free in enumerate(frees)
        ]
        for allotment in used:
            cluster.take(allotment)
        for found, wanted in zip(choices, machine.sizes, strict=True):
            found[frees] = _answers(asked, Job(0, 0.0, 1.0, (pod_of(wanted),)), lots)
        for allotment in used:
            cluster.give_back(allotment)
    return [_in_every_state(found, machine, machines) for found in choices]


def pod_of(gpus: int) -> Pod:
    """Return a pod that asks for CPU and memory in step with its GPUs, so that they never decide."""
    return Pod(gpus, cpu_milli=gpus * CPU_MILLI_PER_GPU, memory_mib=gpus * MEMORY_MIB_PER_GPU)


class _Lots(Random):
    """Lots that fall as they are told to."""

    def __init__(self) -> None:
        super().__init__(0)
        self.falls, self.among = 0, 1

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]  # asked for by sequences only
        """Return one, and remember among how many."""
        self.among = len(seq)
        return seq[self.falls]


def _answers(policy: Policy, job: Job, lots: _Lots) -> list[Choice]:
    """Return all that the policy may do, each as likely; what it learns from being asked is not wanted here."""
    lots.falls, lots.among = 0, 1
    answers = [_answer(policy, job)]
    for falls in range(1, lots.among):
        lots.falls = falls
        answers.append(_answer(policy, job))
    return answers


def _answer(policy: Policy, job: Job) -> Choice:
    if isinstance(policy, PodByPod):
        found = policy.choose(job.pods[0], job)
    else:
        placed = policy.place(job)
        found = placed[0] if placed else None
    return (found.node, found.mask) if found else None


def _in_every_state(
    choices: dict[tuple[int, ...], list[Choice]], machine: WholeGpus, machines: int
) -> list[tuple[float, Indexes]]:
    """Return where the choices lead, from each state of all machines."""
    columns = len(machine.free) if machines == 2 else 1
    free_in = np.array(machine.free)
    states = {free: np.flatnonzero(free_in == free).astype(np.int32) for free in dict.fromkeys(machine.free)}
    afters: dict[tuple[int, int], Indexes] = {}
    outcomes = lcm(*(len(answers) for answers in choices.values()))
    nowhere = np.arange(len(machine.free) * columns, dtype=np.int32).reshape(-1, columns)
    found = [nowhere.copy() for _ in range(outcomes)]
    for frees, answers in choices.items():
        for outcome, after in enumerate(found):
            choice = answers[outcome % len(answers)]
            if choice is None:
                continue
            at, taken = choice
            if (frees[at], taken) not in afters:
                leads = [machine.after(int(state), taken) for state in states[frees[at]]]
                afters[frees[at], taken] = np.array(leads, dtype=np.int32)
            lines: list[Indexes] = [states[free] for free in frees] + [np.zeros(1, dtype=np.int32)] * (2 - machines)
            here = np.ix_(*lines)
            lines[at] = afters[frees[at], taken]
            after[here] = lines[0][:, None] * columns + lines[1][None, :]
    return [(1 / outcomes, after) for after in found]
