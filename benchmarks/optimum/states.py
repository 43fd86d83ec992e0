"""What a machine can hold, as numbers: what every computation here needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Indexes: TypeAlias = npt.NDArray[np.int32]
Numbers: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class States:
    """The states of one machine; they are told by their index, and 0 is the empty one."""

    moves: Sequence[Sequence[Indexes]]
    """For each kind of pod and each state: where any placement of such a pod leads to; nowhere where it does not fit."""
    ends: Sequence[tuple[Indexes, Numbers]]
    """For each state: where it leads to that a pod ends, and how many pods lead there."""
    worth: Numbers
    """Of all pods that a state holds, in the product's measure."""
    pods: Numbers
    """How many of each kind a state holds: a row for each state."""
    cliques: Numbers
    """How many of these have an NVLink between every two of their GPUs."""

    def __len__(self) -> int:
        return len(self.ends)
