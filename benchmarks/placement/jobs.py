"""What arrives: jobs, each of one pod or of several that start together."""

from __future__ import annotations

from dataclasses import dataclass, field

from topology.request.gpu_request import Communication
from topology.value.fragmentation import WHOLE_GPU_MILLI


@dataclass(frozen=True, slots=True)
class PodSize:
    """What one pod asks of one node."""

    gpus: int
    gpu_milli: int = WHOLE_GPU_MILLI
    """Of each of its GPUs; less than 1000 shares one."""
    cpu_milli: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    """Any of these GPU models will do; none named: any."""

    @property
    def shares(self) -> bool:
        """Whether it leaves part of its GPU to others."""
        return self.gpus > 0 and self.gpu_milli < WHOLE_GPU_MILLI


@dataclass(frozen=True, slots=True)
class Job:
    """Pods that arrive, start and end together."""

    number: int
    arrival_s: float
    service_s: float
    """Run time on the best GPUs there are."""
    pods: tuple[PodSize, ...]
    application: str = ""
    """What it trains; decides how much of its time is communication."""
    communication: Communication = Communication.HEAVY
    """What its owner says of it to the scheduler."""
    traffic_gb_per_s: float = 0.0
    """What it sends for each second of computing; see `benchmarks.placement.speed`."""
    minimal_utility: float = 0.0
    """Amaral's lower bound on the utility of a placement, 0..1."""
    gpus: int = field(init=False, compare=False)
    """GPUs of all its pods."""
    whole_gpus: int = field(init=False, compare=False)
    """The same, less those of pods that share one."""
    most_whole_gpus: int = field(init=False, compare=False)
    """The whole GPUs of its largest pod, all of them on one node."""

    def __post_init__(self) -> None:
        """Count once what is asked for whenever something ends."""
        whole = [pod.gpus for pod in self.pods if not pod.shares]
        object.__setattr__(self, "gpus", sum(pod.gpus for pod in self.pods))
        object.__setattr__(self, "whole_gpus", sum(whole))
        object.__setattr__(self, "most_whole_gpus", max(whole, default=0))
