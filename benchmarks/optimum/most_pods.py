"""A rule that no scheduler has: the machine with the most pods first, since the one with the fewest is empty the soonest.

Then the fuller machine, then the first; a share on the fullest GPU with room, whole GPUs by position. It shows what is won by
looking at what will be free, and not only at what is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.optimum.process import Rule
from benchmarks.optimum.rules import MachineModel
from benchmarks.placement.jobs import PodSize

MOST_PODS = "most-pods"


def most_pods(machine: MachineModel, machines: int, kinds: Sequence[PodSize]) -> Rule:
    """Return what it does in every state with each kind of pod."""
    count = len(machine.left_milli)
    order = np.lexsort(([sum(left) for left in machine.left_milli], -machine.states.pods.sum(axis=1)))
    rank = np.empty(count, dtype=np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    columns = count if machines == 2 else 1
    here, there = np.divmod(np.arange(count * columns, dtype=np.int32).reshape(count, columns), np.int32(columns))
    rule = []
    for place, pod in enumerate(kinds):
        after = np.array([_after(machine, state, place, pod) for state in range(count)], dtype=np.int32)
        fits = after != np.arange(count)
        on_first = after[here] * np.int32(columns) + there
        if machines == 1:
            rule.append([(1.0, on_first)])
            continue
        takes_first = fits[here] & (~fits[there] | (rank[here] <= rank[there]))
        rule.append([(1.0, np.where(takes_first, on_first, here * np.int32(columns) + after[there]))])
    return rule


def _after(machine: MachineModel, state: int, place: int, pod: PodSize) -> int:
    """Return where the pod leads; the same state where it does not fit."""
    enough = sorted((left, i) for i, left in enumerate(machine.left_milli[state]) if left >= pod.gpu_milli)
    if len(enough) < pod.gpus:
        return state
    return machine.after(state, place, sum(1 << i for _, i in enough[: pod.gpus]))
