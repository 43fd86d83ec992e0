"""What a policy that moves running pods does on two machines, asked in every state in which a pod fits on neither of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from benchmarks.optimum.moving import Bools, Costs, MovingProcess
from benchmarks.optimum.process import Rule
from benchmarks.optimum.rules import pod_of, rule_of
from benchmarks.optimum.whole_gpus import WholeGpus
from benchmarks.placement.cluster import Allotment, Cluster, ServerSpec
from benchmarks.placement.jobs import Job, PodSize
from benchmarks.placement.policies import policy_for_pods
from benchmarks.placement.policy import MakesRoom, RunningJob
from benchmarks.placement.scenarios.link_graph import CPU_MILLI_PER_GPU, HOUR, MEMORY_MIB_PER_GPU

LONG_AGO = -1e6
"""When all pods began: a move costs each of them the whole restart cost."""


def moving_rule_of(
    policy: str,
    machine: WholeGpus,
    process: MovingProcess,
    kinds: Sequence[PodSize],
    pods: Sequence[PodSize],
    restart_cost: float,
) -> tuple[Rule, Costs]:
    """Return what the policy of that name does, and what its moves cost, as `MovingProcess` counts them.

    `restart_cost` is that of the policy. Without moves it does what `rule_of` says, and it throws no dice.
    """
    node = machine.topology_class.node
    size = len(node)
    server = ServerSpec("node", node, size * CPU_MILLI_PER_GPU, size * MEMORY_MIB_PER_GPU)
    cluster = Cluster([server] * 2)
    mover = policy_for_pods(policy, pods, HOUR)(cluster, Random(0))  # noqa: S311 - a simulation
    rule, costs = [], []
    layers_by_kind = rule_of(policy, machine, 2, kinds, pods)
    for kind, need_moves, layers in zip(
        kinds, states_that_need_moves(machine, process, kinds), layers_by_kind, strict=True
    ):
        ((chance, leads_to),) = layers
        after, cost = leads_to.copy(), np.zeros(process.shape)
        if isinstance(mover, MakesRoom):
            for here, there in np.argwhere(need_moves):
                both = int(here), int(there)
                after[both], cost[both] = _answer(mover, cluster, machine, both, kind, restart_cost)
        rule.append([(chance, after)])
        costs.append(cost)
    return rule, costs


def states_that_need_moves(machine: WholeGpus, process: MovingProcess, kinds: Sequence[PodSize]) -> list[Bools]:
    """Return, for each kind of pod, the states in which it fits on neither machine, though both have enough free GPUs."""
    free = np.array([sum(left > 0 for left in of_gpus) for of_gpus in machine.left_milli])
    both = free[:, None] + free[None, :]
    return [stuck & (both >= kind.gpus) for stuck, kind in zip(process.stuck, kinds, strict=True)]


def _answer(
    policy: MakesRoom, cluster: Cluster, machine: WholeGpus, both: tuple[int, int], kind: PodSize, restart_cost: float
) -> tuple[int, float]:
    """Return where both machines are after the policy was asked for room, and what that cost."""
    running = [*_running(machine, both)]
    for job in running:
        cluster.take(job.placed[0])
    room = policy.make_room(Job(len(running), 0.0, 1.0, (kind,)), running, 0.0)
    for job in running:
        cluster.give_back(job.placed[0])
    count = len(machine.states)
    if room is None:
        return both[0] * count + both[1], 0.0
    places = {job.job.number: job.placed[0] for job in running}
    cost = sum(machine.worth_of(move.running.placed[0].mask) for move in room.moves) * restart_cost
    places |= {move.running.job.number: move.placed[0] for move in room.moves}
    held = [[place.mask for place in (*places.values(), room.placed[0]) if place.node == at] for at in range(2)]
    first, second = map(machine.state_of, held)
    return first * count + second, cost


def _running(machine: WholeGpus, both: tuple[int, int]) -> Iterator[RunningJob]:
    sets = [(at, mask) for at, state in enumerate(both) for mask in machine.sets_in(state)]
    for number, (at, mask) in enumerate(sets):
        positions = tuple(i for i in range(len(machine.topology_class.node)) if mask >> i & 1)
        pod = pod_of(len(positions))
        yield RunningJob(Job(number, LONG_AGO, 1.0, (pod,)), (Allotment(at, positions, pod),), LONG_AGO)
