"""A node's kubelet: starts what is bound to its node, ends what is deleted, says so, and may take its time with all of it.

Whenever it looks, it sees all of its pods as they are then. It starts containers on exactly the GPUs of the placement record; a
pod without one gets what the ledger says is its own, else GPUs that nobody runs on and nobody has claimed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Protocol

import msgspec

from benchmarks.simulated.double.api import HttpRequest
from benchmarks.simulated.double.resources import NODES, Object
from benchmarks.simulated.pod_life import EXIT_CODE, Message, has_ended, message, next_status
from tests.simulation.storm import Storm
from tests.simulation.trace import Trace
from tests.simulation.wording import annotations_of, read_ledger, short
from tests.simulation.world.hardware import Hardware, overlapping
from tests.simulation.world.scheduler import devices_of, profile_of, share_of
from tests.simulation.world.server import NAMESPACE, Server
from tests.simulation.world.wire import Wire
from tests.world.faults import Fault
from tests.world.records import record_text
from topology.annotations.records import Claim, Holder, Sharer, decode_placement

LONG_GRACE = "simulation.gputopo.dev/long-grace"
"""On a pod: its containers do not end before the run does."""
CRASHING = "simulation.gputopo.dev/crashing"
"""On a pod: its container has crashed, and will start again."""
_PATIENCE_SECONDS = 4.0
_FOR_EVER = float("inf")
_FAILED = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}


class Witness(Protocol):
    """Whoever watches over what really runs."""

    def started(self, uid: str, gpus: frozenset[str], beside: tuple[str, ...]) -> None:
        """Take note that containers run on these GPUs, together with those of other pods."""

    def stopped(self, uid: str) -> None:
        """Take note that none of the pod's containers runs or will ever run again."""


@dataclass(slots=True)
class _Life:
    """What the kubelet knows of one pod."""

    running: bool = False
    stop_at: float = _FOR_EVER


class Kubelet:
    """The kubelet of one node."""

    def __init__(
        self,
        name: str,
        hardware: Hardware,
        server: Server,
        storm: Storm,
        trace: Trace,
        witness: Witness,
        random: Random,
    ) -> None:
        self.name = name
        self._hardware = hardware
        self._server = server
        self._storm = storm
        self._trace = trace
        self._witness = witness
        self._random = random
        self._wire = Wire(f"kubelet-{name}", server, storm, trace, random)
        self._lives: dict[str, _Life] = {}

    async def run(self) -> None:
        """Look after the node, for ever."""
        while True:
            await asyncio.sleep(self._random.uniform(0.2, 1.2))
            if self._storm.strikes(Fault.KUBELET_FROZEN, self._random):
                await self._freeze()
            await self._look()

    def lose_hardware(self) -> None:
        """Forget everything: another machine has taken the place of this one."""
        self._lives.clear()
        for uid in (*self._hardware.replace(), *(pod["metadata"]["uid"] for pod in self._pods())):
            self._witness.stopped(uid)

    async def _freeze(self) -> None:
        seconds = self._random.uniform(1.0, 15.0)
        self._trace.fault(Fault.KUBELET_FROZEN, self.name, f"for {seconds:.1f} s")
        lost = seconds > 6.0
        if lost:
            self._trace.fault(Fault.NODE_NOT_READY, self.name)
            self._set_ready("Unknown", "node-controller")
        await self._storm.sleep(seconds)
        if lost:
            self._set_ready("True", f"kubelet-{self.name}")

    def _set_ready(self, status: str, writer: str) -> None:
        if self._server.find(NODES, self.name):
            with self._server.writing(writer) as store:
                conditions = {"conditions": [{"type": "Ready", "status": status}]}
                store.modify(
                    NODES,
                    "",
                    self.name,
                    lambda node: {**node, "status": node["status"] | conditions},
                    subresource="status",
                )

    async def _look(self) -> None:
        """Bring what runs in line with the API, then tell the API what runs."""
        now = asyncio.get_running_loop().time()
        pods = {pod["metadata"]["uid"]: pod for pod in self._pods()}
        for uid, pod in pods.items():
            if uid not in self._lives:
                self._admit(uid, pod, list(pods.values()))
        for uid, life in [*self._lives.items()]:
            self._end_in_time(uid, life, pods.get(uid), now)
        for uid, pod in pods.items():
            known = self._lives.get(uid)
            if known is None:  # another machine has come in the meantime
                return
            if told := message(pod, self._status(pod, known), stopped=not known.running):
                await self._send(told)

    def _pods(self) -> list[Object]:
        return [pod for pod in self._server.pods() if pod["spec"].get("nodeName") == self.name]

    def _admit(self, uid: str, pod: Object, pods: list[Object]) -> None:
        """Start the pod's containers, unless they never will."""
        self._lives[uid] = _Life()
        gpus = self._gpus_for(pod, pods)
        if "deletionTimestamp" in pod["metadata"] or has_ended(pod) or gpus is None:
            self._trace.note(self.name, f"does not start {pod['metadata']['name']} ({uid})")
            self._witness.stopped(uid)
            return
        self._trace.note(self.name, f"starts {pod['metadata']['name']} ({uid}) on {' '.join(map(short, sorted(gpus)))}")
        self._lives[uid].running = True
        beside = self._hardware.users_of(gpus)
        self._hardware.run(uid, _holder(pod), gpus)
        self._witness.started(uid, gpus, beside)

    def _gpus_for(self, pod: Object, pods: list[Object]) -> frozenset[str] | None:
        """Return what the device plugin gives; `None`: the node cannot take the pod."""
        placed = _placed(recorded_for(pod, pods))
        if placed is None:
            placed = self._unplanned(pod, pods)
        return placed if placed and placed.issubset(self._hardware.offered(profile_of(pod))) else None

    def _unplanned(self, pod: Object, pods: list[Object]) -> frozenset[str] | None:
        claims, count = self._claims(), devices_of(pod) or 1
        own = frozenset(claim.gpu for claim in claims if claim.uid == pod["metadata"]["uid"])
        reserved = {*(claim.gpu for claim in claims), *(gpu for other in pods for gpu in _placed(other) or ())}
        free = [
            gpu
            for gpu in self._hardware.offered(profile_of(pod))
            if not overlapping(gpu, reserved) and not self._hardware.users_of(frozenset({gpu}))
        ]
        chosen = own or frozenset(free[:count])
        return chosen if len(chosen) == count else None

    def _claims(self) -> tuple[Claim, ...]:
        ledger = read_ledger(self._server.find(NODES, self.name))
        return ledger.claims if ledger else ()

    def _end_in_time(self, uid: str, life: _Life, pod: Object | None, now: float) -> None:
        if not life.running:
            return
        if life.stop_at == _FOR_EVER and (pod is None or _must_end(pod)):
            life.stop_at = now + self._dying_seconds(pod)
        if life.stop_at <= now or (self._storm.is_over and life.stop_at < _FOR_EVER):
            self._trace.note(self.name, f"containers of {uid} have stopped")
            life.running = False
            self._hardware.stop(uid)
            self._witness.stopped(uid)

    def _dying_seconds(self, pod: Object | None) -> float:
        if pod is not None and LONG_GRACE in annotations_of(pod):
            return _FOR_EVER
        if self._storm.strikes(Fault.LATE_STOP, self._random):
            seconds = self._random.uniform(2.0, 40.0)
            self._trace.fault(Fault.LATE_STOP, self.name, f"by {seconds:.1f} s")
            return seconds
        return self._random.uniform(0.0, 1.0)

    def _status(self, pod: Object, life: _Life) -> Object | None:
        uid, now = pod["metadata"]["uid"], "2026-01-01T00:00:00Z"
        if life.running:
            if CRASHING in annotations_of(pod) and pod["status"].get("phase") == "Running":
                crashed = [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]
                return None if pod["status"]["containerStatuses"] == crashed else {"containerStatuses": crashed}
            return None if _must_end(pod) else next_status(pod, now, terminating=False)
        if not self._hardware.runs(uid) and pod["status"].get("startTime") is None and not has_ended(pod):
            return {**_FAILED, "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 137}}}]}
        return next_status(pod, now, terminating=True)

    async def _send(self, told: Message) -> None:
        request = HttpRequest(told.method, told.path, {}, told.content_type, msgspec.json.encode(told.body))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._wire.call(request)
        except (ConnectionResetError, TimeoutError):
            return


def recorded_for(pod: Object, pods: list[Object]) -> Object:
    """Return the pod, among those of the node, whose record says what `pod` gets: itself."""
    return pod


def is_placed(pod: Object) -> bool:
    """Whether the pod has a record."""
    return _placed(pod) is not None


def _holder(pod: Object) -> Holder:
    name, gib = pod["metadata"]["name"], share_of(pod)
    return Sharer(NAMESPACE, name, "main", gib) if gib else Holder(NAMESPACE, name, "main")


def _must_end(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"] or has_ended(pod) or EXIT_CODE in annotations_of(pod)


def _placed(pod: Object) -> frozenset[str] | None:
    text = record_text(pod)
    if text is None:
        return None
    return frozenset(gpu for gpus in decode_placement(text).containers.values() for gpu in gpus)
