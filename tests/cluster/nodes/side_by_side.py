"""NVIDIA's device plugin and ours on the same machine with the same pods: one function per question, one answer in words."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster.component import Component
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.pods import is_running, refusal, submit
from tests.cluster.objects import Json
from tests.cluster.polling import TimedOut, eventually
from topology.annotations import keys
from topology.annotations.records import decode_ledger

_SOON_SECONDS = 5.0
_SECONDS_TO_COME_BACK = 20.0


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a node, its plugin, and how a pod gets there."""

    name: str
    cluster: GpuCluster
    node: GpuNode
    plugin: Component
    wanted: Callable[[str, int], Json]
    """Makes a pod for the node from its name and number of GPUs."""

    def place(self, name: str, gpus: int, within_seconds: float = 60.0) -> set[str]:
        """Submit a pod; return its GPUs, or none if the kubelet turned it away."""
        name = self._own(name)
        submit(self.node, self.wanted(name, gpus))
        eventually(lambda: is_running(self.node, name) or refusal(self.node, name), within_seconds)
        return self.node.held().get((name, "main"), set())

    def clear(self, *names: str) -> None:
        """Delete pods, and return when nobody holds anything."""
        for name in names:
            self.cluster.delete(self._own(name))
        eventually(lambda: not self.node.held() and not self._is_promised(), 60)

    def start_anew(self) -> None:
        """Repair the machine and start the plugin again."""
        self.plugin.kill()
        self.node.machine.repair()
        self.plugin.start()
        eventually(lambda: self.node.offered() == set(self.node.machine.uuids), within_seconds=60)

    def _own(self, name: str) -> str:
        return f"{name}-{self.node.name}"

    def _is_promised(self) -> bool:
        ledger = self.node.annotation(keys.LEDGER)
        return ledger is not None and bool(decode_ledger(ledger).claims)


def islands_broken(side: Side, rounds: int) -> int:
    """Return how often a pod of 2 took a GPU of the island that the pod of 2 before it had left untouched."""
    half = len(side.node.machine.uuids) // 2
    island = {uuid: position // half for position, uuid in enumerate(side.node.machine.uuids)}
    broken = 0
    for number in range(rounds):
        first, second = (side.place(f"{which}{number}", 2) for which in ("first", "second"))
        assert len(first) == len(second) == 2, f"a pod of 2 holds {first}, the other {second}"
        used = {island[uuid] for uuid in first}
        assert len(used) == 1, f"{first} straddles both islands of an empty machine, and no island was left untouched"
        broken += not {island[uuid] for uuid in second} <= used
        side.clear(f"first{number}", f"second{number}")
    return broken


def after_silent_loss(side: Side) -> str:
    """Say what becomes of a pod of 2 when another GPU has been lost without an event."""
    side.node.machine.say("fail nvmlDeviceGetHandleByIndex_v2 3 GPU_IS_LOST")
    settle(side)
    return outcome(side, "lost")


def with_asymmetric_links(side: Side) -> str:
    """Say what becomes of a pod of 2 when one GPU does not see the links that its peers see."""
    side.node.machine.say("link 0 0-11 inactive")
    settle(side)
    said = outcome(side, "asymmetric")
    return f"{said}; the plugin died" if comes_true(lambda: not side.plugin.is_running) else said


def after_transient_xid(side: Side) -> str:
    """Say how many GPUs there are to have, seconds after an XID whose cause has gone; ours waits for 3 s without another."""
    side.node.machine.xid(gpu=3, number=74)
    every = len(side.node.machine.uuids)
    comes_true(lambda: len(side.node.offered()) < every)
    comes_true(lambda: len(side.node.offered()) == every, _SECONDS_TO_COME_BACK)
    return f"{len(side.node.offered())} of {every}"


def seconds_for_three_of_sixteen(side: Side) -> str:
    """Say how long a pod of 3 takes from its creation until it runs on a machine with sixteen free GPUs."""
    began = time.monotonic()
    side.place("three", 3, within_seconds=300)
    return f"{time.monotonic() - began:.1f} s"


def outcome(side: Side, name: str) -> str:
    """Say what became of a pod of 2."""
    return "runs" if side.place(name, 2) else "refused"


def settle(side: Side) -> None:
    """Give the plugin the time to notice what has changed."""
    known = len(side.node.offered())
    comes_true(lambda: len(side.node.offered()) != known)


def comes_true(claim: Callable[[], bool], within_seconds: float = _SOON_SECONDS) -> bool:
    """Whether a claim comes true in time."""
    try:
        return eventually(claim, within_seconds)
    except TimedOut:
        return False
