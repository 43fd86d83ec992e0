"""All that tests let go wrong, each under one name; who brings it about says how, and looks up here what it is called.

What can become of requests and of watches is named, with its meaning, by the API double, which also serves the demo; the same
words are brought about over HTTP (`tests.world.http_faults.Unreliable`), between a real process and any API server
(`tests.process.faults`), in virtual time (`tests.simulation.world`), and without a wire (`tests.extender.world`).
Faults of machines have names of their own in the models that play them: the fake NVML and the kubelet double.
"""

from __future__ import annotations

from enum import StrEnum

from tests.world.http_faults import RequestFault, StreamFault


class Fault(StrEnum):
    """What can go wrong beside requests and watches."""

    LATE_REQUEST = "request held in the network until nobody waits for it"
    LATE_BINDING = "Binding held in the network"
    LATE_REPORT = "agent's report held in the network"
    COMPACTED = "history compacted"

    CRASH_BEFORE = "crash before a request"
    CRASH_AFTER = "crash after a request was sent"
    KILLED = "process killed"
    FROZEN = "process frozen"
    CLOCK_JUMP = "wall clock jump"
    CLOCK_RATE = "clock rate"
    WEBHOOK_LOST = "webhook answer lost"
    WEBHOOK_TWICE = "bind called twice"
    RIVAL_SCHEDULER = "two schedulers"

    POD_DELETED = "pod deleted"
    POD_FORCED = "pod deleted by force"
    POD_LONG_GRACE = "pod terminating for long"
    POD_ENDED = "pod ended"
    POD_FAILED_UNBOUND = "unbound pod failed by somebody"
    POD_PATCHED = "pod patched by somebody"
    POD_NAMESAKE = "pod replaced by a namesake"
    POD_NOMINATED = "pod nominated by somebody"
    POD_UNREADABLE = "request made unreadable"
    POD_CRASHING = "container crashed and will restart"
    FOREIGN_BINDING = "pod bound around us"
    FORGED_PLACEMENT = "pod bound with the GPU of another"
    LATE_STOP = "containers outlive their pod"
    KUBELET_FROZEN = "kubelet frozen"
    NODE_NOT_READY = "node not ready"
    NODE_DELETED = "node deleted"
    NODE_AGAIN = "node back with its GPUs"
    NODE_REPLACED = "node back with other GPUs"
    NODE_RESTORED = "node back with its old ledger"
    GPU_SICK = "GPU sick"
    GPU_CUT = "GPU cut into MIG slices, or made whole again, under its pods"
    LEDGER_WIPED = "ledger wiped"
    LEDGER_EDITED = "ledger edited by hand"
    LEDGER_TRUNCATED = "ledger truncated"


AnyFault = Fault | RequestFault | StreamFault
