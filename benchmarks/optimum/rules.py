"""What a policy of the benchmark does on one or two machines, asked once for whatever may be seen of them.

So it has to decide by what is left of each GPU and by how many pods share it. Where it draws lots, or the node's device plugin
chooses, each outcome counts with its chance. It sees one of all ways in which the same is seen, so ties that it breaks by
position are broken there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from benchmarks.optimum.process import Rule
from benchmarks.optimum.states import Indexes, Numbers, States
from benchmarks.placement.cluster import Allotment, Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.policy import ByPlugin, PlacementPolicy, PodByPod
from benchmarks.placement.product import Gputopo
from benchmarks.placement.scenarios.link_graph import CPU_MILLI_PER_GPU, MEMORY_MIB_PER_GPU
from topology.placement.topology_class import TopologyClass
from topology.value.coming_back import MANY_PODS
from topology.value.fragmentation import WHOLE_GPU_MILLI

T = TypeVar("T")

Seen: TypeAlias = tuple[tuple[int, int], ...]
"""By position, what is left of each GPU, in thousandths, and how many pods share it, at most `MANY_PODS`."""
Choice = tuple[int, int] | None
"""Machine, and GPUs as a mask; `None`: refused."""
Answers = list[tuple[float, Choice]]
"""All that may be done, with the chance of each."""


class MachineModel(Protocol):
    """What a policy can be asked about."""

    @property
    def topology_class(self) -> TopologyClass:
        """The wires."""
        ...

    @property
    def states(self) -> States:
        """What it can hold."""
        ...

    @property
    def left_milli(self) -> Sequence[tuple[int, ...]]:
        """What is left of each GPU, in thousandths, by state."""
        ...

    @property
    def sharers(self) -> Sequence[tuple[int, ...]]:
        """How many pods share each GPU, by state."""
        ...

    def after(self, state: int, place: int, taken: int) -> int:
        """Return where it leads to that a pod of one of the kinds takes these GPUs (mask), or its share of the one."""
        ...


def rule_of(
    policy: str, machine: MachineModel, machines: int, kinds: Sequence[PodSize], pods: Sequence[PodSize]
) -> Rule:
    """Return what the policy of that name does in every state with each kind of pod.

    `pods` are such as come, as often as they come. The product where GPUs are shared learns the mix from them, as it does from
    pods that it serves.
    """
    node = machine.topology_class.node
    size = len(node)
    cluster = Cluster([ServerSpec("node", node, size * CPU_MILLI_PER_GPU, size * MEMORY_MIB_PER_GPU)] * machines)
    lots = _Lots()
    asked = policy_for_pods(policy, pods)(cluster, lots)
    if isinstance(asked, Gputopo) and any(pod.shares for pod in pods):
        for number, pod in enumerate(pods):
            asked.place(Job(number, 0.0, 1.0, (pod,)))
    views = [*dict.fromkeys(seen_of(machine))]
    choices: list[dict[tuple[Seen, ...], Answers]] = [{} for _ in kinds]
    for looks in product(views, repeat=machines):
        used = [allotment for at, seen in enumerate(looks) for allotment in pods_that_leave(at, seen)]
        for allotment in used:
            cluster.take(allotment)
        for found, wanted in zip(choices, kinds, strict=True):
            found[looks] = _answers(asked, cluster, Job(0, 0.0, 1.0, (wanted,)), lots)
        for allotment in used:
            cluster.give_back(allotment)
    return [_in_every_state(found, machine, machines, place) for place, found in enumerate(choices)]


def pod_of(gpus: int, gpu_milli: int = WHOLE_GPU_MILLI) -> PodSize:
    """Return a pod that asks for CPU and memory in step with its GPUs, so that they never decide."""
    milli = gpus * gpu_milli
    cpu_milli, memory_mib = milli * CPU_MILLI_PER_GPU, milli * MEMORY_MIB_PER_GPU
    return PodSize(gpus, gpu_milli, cpu_milli // WHOLE_GPU_MILLI, memory_mib // WHOLE_GPU_MILLI)


def seen_of(machine: MachineModel) -> list[Seen]:
    """Return what is seen of a machine, by state."""
    pods = ([min(count, MANY_PODS) for count in sharers] for sharers in machine.sharers)
    return [tuple(zip(left, count, strict=True)) for left, count in zip(machine.left_milli, pods, strict=True)]


def pods_that_leave(at: int, seen: Seen) -> Iterator[Allotment]:
    """Return pods that leave so much of a machine: one with all GPUs that are in use and not shared, and those that share."""
    whole = tuple(position for position, (left, pods) in enumerate(seen) if not left and not pods)
    yield Allotment(at, whole, pod_of(len(whole)))
    for position, (left, pods) in enumerate(seen):
        taken = WHOLE_GPU_MILLI - left
        for number in range(pods):
            yield Allotment(at, (position,), pod_of(1, taken * (number + 1) // pods - taken * number // pods))


class _Lots(Random):
    """Lots that fall as they are told to."""

    def __init__(self) -> None:
        super().__init__(0)
        self.falls, self.among = 0, 1

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]  # asked for by sequences only
        """Return one, and remember among how many."""
        self.among = len(seq)
        return seq[self.falls]


def _answers(policy: PlacementPolicy, cluster: Cluster, job: Job, lots: _Lots) -> Answers:
    """Return all that the policy may do; what it learns from being asked is not wanted here."""
    lots.falls, lots.among = 0, 1
    choices = [_choice(policy, job)]
    for falls in range(1, lots.among):
        lots.falls = falls
        choices.append(_choice(policy, job))
    answers: Answers = []
    for choice in choices:
        possible: Answers = [(1.0, choice)]
        if choice is not None and isinstance(policy, ByPlugin) and not job.pods[0].shares:
            at, _ = choice
            possible = [(one.share, (at, one.gpus)) for one in policy.chances(cluster.nodes[at], job.gpus)]
        answers += [(chance / len(choices), possibility) for chance, possibility in possible]
    return answers


def _choice(policy: PlacementPolicy, job: Job) -> Choice:
    if isinstance(policy, PodByPod):
        found = policy.choose(job.pods[0], job)
    else:
        placed = policy.place(job)
        found = placed[0] if placed else None
    return (found.node, found.mask) if found else None


def _in_every_state(
    choices: dict[tuple[Seen, ...], Answers], machine: MachineModel, machines: int, place: int
) -> list[tuple[float | Numbers, Indexes]]:
    """Return where the choices lead, from each state of all machines.

    The first of several layers has one answer for each state, the second another one where there are two, and so on.
    """
    count = len(machine.left_milli)
    columns = count if machines == 2 else 1
    alike_of: dict[Seen, list[int]] = {}
    for state, seen in enumerate(seen_of(machine)):
        alike_of.setdefault(seen, []).append(state)
    states = {seen: np.array(alike, dtype=np.int32) for seen, alike in alike_of.items()}
    afters: dict[tuple[Seen, int], Indexes] = {}
    nowhere = np.arange(count * columns, dtype=np.int32).reshape(-1, columns)
    layers: list[tuple[Numbers, Indexes]] = []
    for looks, answers in choices.items():
        chances: dict[tuple[int, bytes], float] = {}
        for chance, choice in answers:
            at, after = -1, b""
            if choice is not None:
                at, taken = choice
                if (looks[at], taken) not in afters:
                    leads = [machine.after(int(state), place, taken) for state in states[looks[at]]]
                    afters[looks[at], taken] = np.array(leads, dtype=np.int32)
                after = afters[looks[at], taken].tobytes()
            # Sets that are wired alike lead to the same states.
            chances[at, after] = chances.get((at, after), 0.0) + chance
        lines: list[Indexes] = [states[seen] for seen in looks] + [np.zeros(1, dtype=np.int32)] * (2 - machines)
        here = np.ix_(*lines)
        for number, ((at, after), chance) in enumerate(chances.items()):
            if number == len(layers):
                layers.append((np.zeros(nowhere.shape), nowhere.copy()))
            of_layer, leads_to = layers[number]
            of_layer[here] = chance
            if at >= 0:
                ends = [*lines]
                ends[at] = np.frombuffer(after, dtype=np.int32)
                leads_to[here] = ends[0][:, None] * columns + ends[1][None, :]
    return [*layers]
