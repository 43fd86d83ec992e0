"""Record in a node's ledger which GPUs the node owns, so that no other node can take them by publishing their UUIDs.

Every write of a ledger records them. This is for nodes on which nothing else is written: after an upgrade, and when a GPU
was added to the node or removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.binding.intents import Done, Step
from extender.binding.ledger import swap_ledger
from extender.cluster.objects.kinds import Node
from extender.cluster.state import ClusterState

MAX_PER_ROUND = 64
"""After an upgrade all nodes are due: binds must not wait for them."""
RETRY_SECONDS = 60.0
"""Between two attempts at one node."""


@dataclass(slots=True)
class Records:
    """Remembers when each node was tried last."""

    _tried: dict[str, float] = field(default_factory=dict)

    def due(self, state: ClusterState, now: float) -> list[str]:
        """Return the nodes to record at `now` (monotonic seconds), by name; they count as tried."""
        self._tried = {name: at for name, at in self._tried.items() if now - at < RETRY_SECONDS}
        names = [name for name in sorted(state.conditions.unrecorded) if name not in self._tried][:MAX_PER_ROUND]
        self._tried |= dict.fromkeys(names, now)
        return names


def record_gpus(state: ClusterState, name: str) -> Step[bool]:
    """Record the GPUs of one node; returns whether they are written."""
    view = state.views.get(name)
    if view is None or not view.is_unrecorded:
        return False
    reply = yield swap_ledger(view)
    if not (isinstance(reply, Done) and isinstance(reply.value, Node)):
        return False
    state.nodes.learn(reply.value)
    return True
