"""How a group of pods stands, as a value with a JSON form."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from extender.cluster.state import ClusterState
from extender.verbs.pod_context import PodContext
from topology.request.domains import OURS


class GroupInfo(BaseModel):
    """How the pod's group stands, and what it asks for; a value."""

    model_config = ConfigDict(frozen=True)

    name: str
    source: str = OURS
    """Whose word it is that the pod is in it: a program's, or our annotation's."""
    affinity: str
    """`rack`, or `required-rack`."""
    to_come: int
    """Pods that are still to be placed, this one among them while it waits."""
    nodes: tuple[str, ...]
    """Where others are, or are on their way to."""
    domains: tuple[str, ...]
    """The domains of that level in which these are, as far as they are known."""

    @property
    def line(self) -> str:
        """All of it, for people."""
        begun = f"others on {', '.join(self.nodes)}" if self.nodes else "none placed yet"
        where = f" in {', '.join(self.domains)}" if self.domains else ""
        whose = "" if self.source == OURS else f", as {self.source} says"
        return f"group {self.name}{whose} ({self.affinity}): {self.to_come} to come, {begun}{where}"


def group_info(state: ClusterState, context: PodContext) -> GroupInfo | None:
    """Return how the pod's group stands, `None` for a pod on its own."""
    if context.group is None:
        return None
    group, progress = context.group, context.progress(state)
    domains = {place.domain(group.level)[1] for place in progress.placed}
    return GroupInfo(
        name=group.name,
        source=group.source,
        affinity=f"required-{group.level}" if group.required else group.level,
        to_come=progress.rest - bool(context.pod.spec.node_name),
        nodes=tuple(context.siblings_on(state)),
        domains=tuple(sorted(name for name in domains if name is not None)),
    )
