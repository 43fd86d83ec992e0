"""Read the MIG devices of a GPU, and name them as NVIDIA's device plugin does.

The number of a profile tells what is special about it, and only a caller with the capability SYS_ADMIN may read that.
Without it there is no answer, because a wrong name would be worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

import pynvml

from agent.gpus.facts import Answer, Known, MigDevice, Missing
from agent.gpus.nvml.answers import ask, mapped
from topology.node.slices import MAX_SLICES_PER_GPU

_GIB, _MIB = 1 << 30, 1 << 20
_EIGHTHS = 8
_SUFFIXES = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
}
"""By NVML's number of the profile; the others have none."""


def read_mig_devices(gpu: Any, total_bytes: int) -> Answer[tuple[MigDevice, ...]]:
    """Return the MIG devices of a GPU with so much memory, by their instances; one that cannot be read makes all unknown."""
    devices, suffixes = [], None
    for number in range(MAX_SLICES_PER_GPU):
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, number)
        if isinstance(handle, Missing):
            if handle.code in {"NOT_FOUND", "INVALID_ARGUMENT"}:
                continue  # nothing there, or past the last
            return handle
        suffixes = suffixes if suffixes is not None else _suffix_by_id(gpu)
        device = _device(gpu, handle.value, total_bytes, suffixes)
        if isinstance(device, Missing):
            return device
        devices.append(device.value)
    return Known(tuple(sorted(devices, key=lambda device: (device.gpu_instance, device.compute_instance))))


def _device(gpu: Any, handle: Any, total_bytes: int, suffixes: Mapping[int, str]) -> Answer[MigDevice]:
    functions = (
        pynvml.nvmlDeviceGetUUID,
        pynvml.nvmlDeviceGetAttributes_v2,
        pynvml.nvmlDeviceGetGpuInstanceId,
        pynvml.nvmlDeviceGetComputeInstanceId,
    )
    answers: list[Any] = []
    for function in functions:
        answer = ask(function, handle)
        if isinstance(answer, Missing):
            return answer
        answers.append(answer.value)
    uuid, attributes, gpu_instance, compute_instance = answers
    instance = ask(pynvml.nvmlDeviceGetGpuInstanceById, gpu, gpu_instance)
    info = ask(pynvml.nvmlGpuInstanceGetInfo, instance.value) if isinstance(instance, Known) else instance
    return mapped(
        info,
        lambda info: MigDevice(
            uuid=uuid,
            profile=_profile(attributes, total_bytes) + suffixes.get(info.profileId, ""),
            memory_bytes=attributes.memorySizeMB * _MIB,
            start=info.placement.start,
            size=info.placement.size,
            gpu_instance=gpu_instance,
            compute_instance=compute_instance,
        ),
    )


def _suffix_by_id(gpu: Any) -> dict[int, str]:
    """Return the suffixes by the driver's number of the profile, which a GPU instance tells of itself."""
    answers = {
        number: ask(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1)
        for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
        if number in _SUFFIXES
    }
    return {answer.value.id: _SUFFIXES[number] for number, answer in answers.items() if isinstance(answer, Known)}


def _profile(attributes: Any, total_bytes: int) -> str:
    """Name a profile by its compute slices and its memory in eighths of the GPU's, as NVIDIA rounds them."""
    eighths = ceil(Fraction(attributes.memorySizeMB * _MIB, total_bytes) * _EIGHTHS)
    gib = Fraction(eighths * ceil(Fraction(total_bytes, _GIB)), _EIGHTHS)
    rounded = int(gib + Fraction(1, 2))
    g, c = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    return f"{g}g.{rounded}gb" if c == g else f"{c}c.{g}g.{rounded}gb"
