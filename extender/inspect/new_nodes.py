"""Whether a new node would help a pod, and whether one is asked for."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from extender.cluster.state import ClusterState
from extender.verbs.pod_context import PodContext


class NewNodes(BaseModel):
    """What autoscalers could bring; a value."""

    model_config = ConfigDict(frozen=True)

    would_fit: tuple[str, ...]
    """Groups, by the label of nodes that names them, of which an empty node would take the pod."""
    placeholder: str | None = None
    """`namespace/name` of what asks for one now."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        fits = f"would fit on a new node of {' or '.join(self.would_fit)}" if self.would_fit else ""
        asks = f"a node is asked for by the placeholder {self.placeholder}" if self.placeholder else ""
        return "; ".join(filter(None, (fits, asks))) or "would fit on a new node of no known group"


def new_nodes(state: ClusterState, asked: PodContext) -> NewNodes | None:
    """Say what a new node would do for a pod; `None` where no group of nodes is known, or not whether it would share GPUs."""
    if asked.request.is_share or not any(True for _ in state.node_groups):
        return None
    with state.effort.bounded():
        groups = state.node_groups.would_take(asked.request)
    placeholder = state.indexes.stand_ins.by_pod().get(asked.pod.metadata.uid)
    name = f"{placeholder.namespace}/{placeholder.name}" if placeholder else None
    return NewNodes(would_fit=tuple(group.name for group in groups), placeholder=name)
