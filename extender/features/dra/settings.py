"""GPUs and MIG devices that ResourceClaims of our DeviceClasses get."""

from __future__ import annotations

from pydantic import Field

from extender.kit.settings import Duration, Names, Section


class DraSettings(Section):
    """ResourceClaims of the DeviceClasses `gpus.gputopo.dev` and `mig.gputopo.dev`."""

    enabled: bool = False
    """Whether the extender allocates them for pods of its queue. Needs `queue.enabled`."""
    preemption: bool = True
    """Whether pods of lower priority that hold such claims end for a pod or gang without room. PodDisruptionBudgets hold."""
    unguarded: bool = False
    """Whether it does so without the policy that reserves NVIDIA's classes."""
    reserved_classes: Names = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
    """DeviceClasses that match devices of `gpu.nvidia.com`. Gates open up to 3 s later while older claims of them wait."""
    deadline: Duration = Field(default=60.0, ge=1)
    """Time after which an allocation that kube-scheduler has not reserved is taken back."""
