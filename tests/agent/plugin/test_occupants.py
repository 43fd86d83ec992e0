"""Whether a container has to wait for somebody who computes on its GPUs."""

from __future__ import annotations

import pytest

from agent.gpus.facts import Answer, Gap, GpuProcess, Known, Missing
from agent.plugin.occupants import occupants

MPS = ("nvidia-cuda-mps-server",)


@pytest.mark.parametrize(
    "answer",
    [
        Known(()),
        Known((GpuProcess(7, "/usr/bin/nvidia-cuda-mps-server"),)),
        Missing(Gap.UNSUPPORTED, "NOT_SUPPORTED"),
        Missing(Gap.LOST, "GPU_IS_LOST"),
        Missing(Gap.FAILED, "UNKNOWN"),
    ],
    ids=str,
)
def test_nobody_waits_for_nobody(answer: Answer[tuple[GpuProcess, ...]]) -> None:
    """Nor for what is ignored, nor because NVML does not tell."""
    assert occupants({"GPU-1": answer}, MPS) is None


def test_who_is_waited_for_is_named() -> None:
    """Every GPU with the processes on it, and their commands as far as they are known."""
    told = {"GPU-2": Known((GpuProcess(9),)), "GPU-1": Known((GpuProcess(7, "python train.py"), GpuProcess(8, MPS[0])))}
    said = "GPU-1 is still in use by process 7 (python train.py); GPU-2 is still in use by process 9"
    assert occupants(told, MPS) == said


def test_command_that_cannot_be_told_is_nobody_who_is_ignored() -> None:
    """A process of another PID namespace computes all the same."""
    assert occupants({"GPU-1": Known((GpuProcess(9),))}, MPS) is not None


def test_message_stays_short() -> None:
    """However many there are."""
    many = tuple(GpuProcess(pid) for pid in range(1, 100))
    said = occupants({"GPU-1": Known(many)}, ())
    assert said == "GPU-1 is still in use by process 1, process 2, process 3, process 4 and 95 more"
