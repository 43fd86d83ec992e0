"""The condition of our Node that says whether its GPUs are healthy, in the manner of other health agents; off by default.

It is written when it changes and never as a heartbeat, and it outlives the agent: a restart is no news of the GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import structlog

from agent.errors import ApiError
from agent.gpus.discovery import NodeDiscovery
from topology.annotations import keys
from topology.node.status import GpuStatus, name_of

MAX_MESSAGE_CHARACTERS: Final = 1000
"""The admission policy of the chart lets the agent write no longer one."""
_PAUSE_SECONDS: Final = 60.0
"""After a write that failed."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class GpuCondition:
    """What the Node says of its GPUs."""

    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    message: str


class ConditionPort(Protocol):
    """Our condition on our Node."""

    @property
    def condition(self) -> GpuCondition | None:
        """What the Node said when the API server spoke of it last."""
        ...

    def write_condition(self, fields: dict[str, Any]) -> None:
        """Set these fields of the condition and leave all else alone; raises `ApiError`."""
        ...


class ConditionKeeper:
    """Keeps the Node's condition in step with its GPUs; `clock` is monotonic, in seconds."""

    def __init__(
        self,
        port: ConditionPort,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._port = port
        self._clock = clock
        self._now = now
        self._not_before = 0.0

    def show(self, discovery: NodeDiscovery) -> None:
        """Have the Node say what holds; call it after the Node has been read."""
        shown, condition = self._port.condition, gpus_healthy(discovery)
        if shown == condition or self._clock() < self._not_before:
            return
        try:
            self._port.write_condition(_fields(shown, condition, f"{self._now():%Y-%m-%dT%H:%M:%SZ}"))
        except ApiError as error:
            self._not_before = self._clock() + _PAUSE_SECONDS
            log.warning("cannot write the node's condition", reason=str(error))
        else:
            log.info("wrote the node's condition", status=condition.status, reason=condition.reason)


def gpus_healthy(discovery: NodeDiscovery) -> GpuCondition:
    """Return what holds of a node's GPUs: whether one is unfit through itself, or whether that is not known."""
    gpus = discovery.status.gpus
    sick = [gpu for gpu in gpus if not gpu.healthy and gpu.sick_since is not None]
    if sick:
        return GpuCondition("False", "GPUsSick", _named(discovery, sick))
    # What a person has taken out has an outlook, and is not sick.
    unknown = [gpu for gpu in gpus if not gpu.healthy and gpu.outlook is None]
    if unknown:
        return GpuCondition("Unknown", "GPUsNotSeen", _named(discovery, unknown))
    return GpuCondition("True", "NoGPUSick", "no GPU is quarantined or failed")


def _named(discovery: NodeDiscovery, gpus: list[GpuStatus]) -> str:
    indexes = {gpu.uuid: gpu.index for gpu in discovery.topology.gpus}
    sentences = (f"{name_of(gpu.uuid, indexes.get(gpu.uuid))}: {'; '.join(gpu.reasons)}" for gpu in gpus)
    return ". ".join(sentences)[:MAX_MESSAGE_CHARACTERS]


def _fields(shown: GpuCondition | None, condition: GpuCondition, now: str) -> dict[str, Any]:
    turned = shown is None or shown.status != condition.status
    return {
        "type": keys.GPUS_HEALTHY,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": now,
        **({"lastTransitionTime": now} if turned else {}),
    }
