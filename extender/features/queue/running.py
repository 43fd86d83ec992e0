"""What pods hold and will give back, and where a unit may go: what a plan rests on besides free GPUs. No I/O."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from extender.cluster.objects.constraints import may_go
from extender.cluster.objects.gpu_pods import GpuPod, expected_seconds_of
from extender.cluster.state import ClusterState
from extender.kit.clock import Instant
from extender.planning.gangs import Places
from extender.planning.reservations import Running
from extender.planning.units import Unit
from topology.effort import Search

NODES_AT_ONCE: Final = 32
"""In one step: about a millisecond."""


def running_pods(state: ClusterState, now: Instant) -> Search[list[Running]]:
    """Return the GPUs that pods hold and that others may have after them."""
    running = list[Running]()
    for number, view in enumerate([*state.views.values()]):
        if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
            yield
        if view.shape.closed is not None:
            continue
        for owner, gpus in view.taken().items():
            pod = state.pods.get(owner) if isinstance(owner, str) else None
            if gpus & view.fit:
                running.append(Running(view.name, gpus & view.fit, _ends_at(pod, now)))
    return running


def _ends_at(pod: GpuPod | None, now: Instant) -> float | None:
    """Return when a pod is expected to end, in monotonic seconds: never in the past, and only of one that has started."""
    seconds = expected_seconds_of(pod.pod) if pod else None
    if pod is None or seconds is None or pod.pod.status.start_time is None:
        return None
    return now.monotonic + max(0.0, seconds - now.age_seconds(pod.pod.status.start_time))


@dataclass(slots=True)
class PlacesOfUnits:
    """Where units may go by labels and taints, for as long as one plan is made."""

    state: ClusterState
    _by_kind: dict[Hashable, Places] = field(default_factory=dict)

    def __call__(self, unit: Unit) -> Places:
        """Return the nodes where the first of its members may go, and where they stand."""
        first = unit.members[0]
        kind = first.node_kind
        if kind not in self._by_kind:
            locations = self.state.nodes.locations
            self._by_kind[kind] = {
                view.name: locations[view.name]
                for view in self.state.views.values()
                if view.name in locations and may_go(first.pod, view.node)
            }
        return self._by_kind[kind]
