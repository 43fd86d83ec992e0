"""What an agent makes of two GPUs over time, and what people say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.gpus.critical_errors import CriticalError
from agent.gpus.facts import Known
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.health_file import HealthFile
from agent.health.policy import HealthPolicy
from tests.agent.builders import discovery, gpu_facts, machine_of
from topology.annotations.overrides import Override, encode_overrides
from topology.node.status import NodeGpuStatus

HOLD = 300.0


class Life:
    """Two healthy GPUs, `GPU-0` and `GPU-1`, on virtual time."""

    def __init__(self, folder: Path | None = None, boot: str = "boot-1", now: float = 0.0) -> None:
        self.now = now
        self.file = HealthFile(folder) if folder else None
        self.health = GpuHealth(lambda: self.now, HealthPolicy(hold=HOLD), self.file, boot)

    def has(self, uuid: str, number: int) -> bool:
        return self.health.happened(CriticalError(uuid, number))

    def look(self, *, lost: bool = False, **facts: object) -> NodeGpuStatus:
        """Discover the node, with this known of `GPU-0`."""
        found, status = machine_of("GPU-0", "GPU-1"), discovery().status
        if lost:
            status = replace(
                status, gpus=(replace(status.gpus[0], healthy=False, reasons=("gpu is lost",)), status.gpus[1])
            )
        first = Known(gpu_facts(uuid=Known("GPU-0"), **facts))
        return self.health.marked(status, replace(found, gpus=(first, found.gpus[1])))

    @property
    def unhealthy(self) -> frozenset[str]:
        return self.health.marked(discovery().status).unhealthy

    @property
    def reasons(self) -> tuple[str, ...]:
        """Of `GPU-0`."""
        return self.health.marked(discovery().status).gpus[0].reasons

    def restart(self, folder: Path, boot: str = "boot-1") -> Life:
        """Return the next agent of this node."""
        assert self.file
        self.file.close()
        return Life(folder, boot, self.now)


def said(**gpus: Override) -> str:
    """Return what people say, as the node's annotation has it."""
    return encode_overrides({name.replace("_", "-"): override for name, override in gpus.items()})
