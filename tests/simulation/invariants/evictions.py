"""The invariants of evictions, at the moment when an extender sends them, and of half gangs in the end.

- EVICT no pod is evicted but one whose gate the queue has opened and that a controller creates again. Its gang is half, and was
  so a while before, or its only node does not exist. A process may know that a little late
- HALF in the end no gang has long been half that a controller keeps whole, unless it or another one has just been ended
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.simulated.double.api import HttpRequest
from benchmarks.simulated.double.resources import NODES, PODS, Object
from benchmarks.simulated.double.store import StoreChange
from benchmarks.simulated.pod_life import has_ended
from tests.simulation.invariants.ownership import Ownership
from tests.simulation.mix import Mix
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of
from tests.simulation.world.scheduler import pinned_to
from tests.simulation.world.server import Server
from topology.annotations import keys

LEAST_SECONDS = 25.0
"""For which a gang is half before it is ended: a clock that runs twice as fast counts a minute."""
LONGEST_SECONDS = 95.0
"""For which a gang is half at most in the calm, after the time of its plan: a minute of a slow clock, and some turns."""
TURN_SECONDS = 40.0
"""After the end of a gang, before another one is ended."""
_LATE_SECONDS = 5.0


@dataclass(slots=True)
class _Gang:
    """What is remembered of one gang."""

    first_half: float | None = None
    since: float | None = None
    """`None`: it is not half."""
    last_half: float = 0.0
    is_ended: bool = False


class Evictions:
    """Listens to the server, and is asked about every eviction."""

    def __init__(
        self, server: Server, ownership: Ownership, trace: Trace, clock: Callable[[], float], mix: Mix
    ) -> None:
        self._server = server
        self._ownership = ownership
        self._trace = trace
        self._clock = clock
        self._late_seconds = mix.longest_hold_seconds + _LATE_SECONDS
        self._longest_seconds = mix.orphan_seconds + LONGEST_SECONDS
        self._gangs: dict[str, _Gang] = {}
        self._missing: dict[str, float] = {}
        """Node → when it was last not there."""
        self._last_end = 0.0
        server.ears.append(self._hear)

    def sent(self, name: str, request: HttpRequest) -> None:
        """EVICT; the pod may have gone meanwhile."""
        pod = next((pod for pod in self._server.pods() if pod["metadata"]["name"] == request.path.split("/")[-2]), None)
        if pod is None:
            return
        self._trace.count("evictions: sent")
        who = f"{name} evicts {pod['metadata']['name']}"
        if pod["spec"].get("schedulingGates"):
            self._trace.violation("EVICT", f"{who}, which has scheduling gates")
        if keys.PLANNED not in annotations_of(pod):
            self._trace.violation("EVICT", f"{who}, which the queue has not started")
        if not _has_controller(pod):
            self._trace.violation("EVICT", f"{who}, which no controller creates again")
        if not (self._was_half(pod) or self._is_stranded(pod)):
            self._trace.violation("EVICT", f"{who}, whose gang is not half and whose node is there")

    def check(self) -> None:
        """HALF."""
        now = self._clock()
        for name, gang in self._gangs.items():
            if (
                gang.since is None
                or gang.is_ended
                or now - gang.since < self._longest_seconds
                or self._ownership.spoiled
            ):
                continue
            if now - self._last_end > TURN_SECONDS and all(map(_has_controller, self._members(name))):
                self._trace.violation("HALF", f"{name} has been half a gang for {now - gang.since:.0f} s")

    def _was_half(self, pod: Object) -> bool:
        gang, now = self._gangs.get(_gang_of(pod) or ""), self._clock()
        if gang is None or gang.first_half is None:
            return False
        last = now if gang.since is not None else gang.last_half
        return gang.first_half <= now - LEAST_SECONDS and last >= now - self._late_seconds

    def _is_stranded(self, pod: Object) -> bool:
        node = pinned_to(pod)
        exists = any(item["metadata"]["name"] == node for item in self._server.nodes())
        return node is not None and (
            not exists or self._missing.get(node, -self._late_seconds) >= self._clock() - self._late_seconds
        )

    def _hear(self, writer: str, change: StoreChange) -> None:
        if change.resource is NODES and change.before is None:
            self._missing[change.key[1]] = self._clock()
        shown = change.after or change.before
        if change.resource is not PODS or shown is None or (name := _gang_of(shown)) is None:
            return
        gang, now, is_half = self._gangs.setdefault(name, _Gang()), self._clock(), self._is_half(name)
        if gang.since is not None:
            gang.last_half = now
        if is_half and gang.since is None:
            gang.since = now
            gang.first_half = now if gang.first_half is None else gang.first_half
        elif not is_half:
            gang.since = None
        is_deleted = change.after is not None and "deletionTimestamp" in change.after["metadata"]
        if writer.startswith("extender") and is_deleted:
            self._trace.count("evictions: granted")
            gang.is_ended, self._last_end = True, now

    def _is_half(self, name: str) -> bool:
        """Whether some members are bound, fewer than the gang needs, and others wait that can be read."""
        members = self._members(name)
        alive = [pod for pod in members if not has_ended(pod) and "deletionTimestamp" not in pod["metadata"]]
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in alive)
        done = sum(pod["status"].get("phase") == "Succeeded" for pod in members)
        size = max((int(annotations_of(pod).get(keys.GROUP_SIZE, 0)) for pod in members), default=0)
        can_be_read = all(keys.MIN_BANDWIDTH not in annotations_of(pod) for pod in alive)
        return 0 < bound < len(alive) and bound + done < size and can_be_read

    def _members(self, name: str) -> list[Object]:
        return [pod for pod in self._server.pods() if _gang_of(pod) == name]


def _gang_of(pod: Object) -> str | None:
    return annotations_of(pod).get(keys.GROUP)


def _has_controller(pod: Object) -> bool:
    return any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences", ()))
