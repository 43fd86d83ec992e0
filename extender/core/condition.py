"""What an extender reports of itself: whether it lives, whether it may be asked, and its gauges."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import NOT_LISTED, ClusterState
from extender.config.document import ExtenderConfiguration
from extender.core.device_watch import DeviceWatch
from extender.core.policies import Guard
from extender.core.preconditions import Preconditions
from extender.core.reconciler import Reconciler
from extender.core.watches import Watches, watches
from extender.kit.rounds import Rounds
from extender.kubernetes.events import EventRecorder
from extender.kubernetes.reflector import Reflector
from extender.kubernetes.watching import Watching
from extender.telemetry.gauges import gauges_of
from extender.telemetry.metrics import Figures

CLAIMS_UNLISTED = "ResourceClaims have not been listed yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition of one extender, from the parts that know it."""

    config: ExtenderConfiguration
    state: ClusterState
    rounds: Rounds
    watches: Watches
    devices: DeviceWatch
    guard: Guard
    preconditions: Preconditions
    reconciler: Reconciler
    events: EventRecorder

    @classmethod
    def of(
        cls,
        config: ExtenderConfiguration,
        state: ClusterState,
        watching: Watching,
        rounds: Rounds,
        reconciler: Reconciler,
        events: EventRecorder,
    ) -> Condition:
        """Return that of an extender with these parts; the others are made here."""
        return cls(
            config=config,
            state=state,
            rounds=rounds,
            watches=watches(watching, state),
            devices=DeviceWatch(watching, state.claims, ask_again_seconds=config.policies.look),
            guard=Guard(watching.api.send, state.nodes),
            preconditions=Preconditions(watching.api.send, state.pods),
            reconciler=reconciler,
            events=events,
        )

    def closed(self) -> str | None:
        """Return why no verb is answered now."""
        if not self.state.synced:
            return NOT_LISTED
        if not self.devices.has_settled:
            return CLAIMS_UNLISTED
        if why := self._unfenced():
            return why
        return self._unguarded() if self.config.policies.required else None

    def life(self) -> dict[str, str | None]:
        """Return every round, and why it ended; only a restart begins it again."""
        return self.rounds.life()

    def readiness(self) -> dict[str, str | None]:
        """Return every condition for being asked, and what is missing."""
        checks = {f"{reflector.name}-watch": self._complaint(reflector) for reflector in self.watches.needed}
        tried = self.preconditions.tried
        checks["binding-preconditions"] = self._unfenced() if tried else "have not been tried yet"
        checks["resourceclaims"] = None if self.devices.has_settled else CLAIMS_UNLISTED
        checks["ledgers"] = None if self.reconciler.had_a_round else "have not been looked at yet"
        checks |= {name: why for name, why in self.rounds.stale().items() if name not in checks}
        return checks | ({"policies": self._unguarded()} if self.config.policies.required else {})

    def figures(self, of_features: Iterable[Figures]) -> Figures:
        """Return the gauges as they are now; one whose value is not known yet is absent."""
        now = asyncio.get_running_loop().time()
        values = {
            "watch_silence_seconds": max(now - reflector.heard_at for reflector in self.watches.needed),
            "events_dropped": self.events.dropped,
            "preconditions_honoured": self.preconditions.honoured,
            "policies_in_force": self.guard.in_force,
            "budgets_known": self.state.budgets.known,
            "resource_claims_watched": self.devices.is_watching,
        }
        figures = dict(gauges_of(self.state))
        figures |= {name: value for name, value in values.items() if value is not None}
        for more in of_features:
            figures |= more
        return figures

    def _unguarded(self) -> str | None:
        return None if self.guard.in_force else "the admission policies are not known to be in force"

    def _unfenced(self) -> str | None:
        ignored = self.preconditions.honoured is False
        return "the API server ignores the preconditions of a Binding" if ignored else None

    def _complaint(self, reflector: Reflector[Node] | Reflector[Pod]) -> str | None:
        if not reflector.synced.is_set():
            return f"not listed yet: {reflector.trouble}"
        if reflector.denied:
            return f"denied: {reflector.trouble}"
        silence = asyncio.get_running_loop().time() - reflector.heard_at
        return f"silent for {silence:.0f} s" if silence > 2 * self.config.watch.silence else None
