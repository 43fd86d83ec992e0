"""The fake's memory limits answer as NVML's of r615 do, as far as that is written down; no such driver was seen."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml.library import FakeNvml, has_compiler, machine

KILLS = 10
SETS = """
import sys, pynvml
pynvml.nvmlInit()
gpu, limits = pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.c_nvmlSetMemoryLimits_v1_t(sys.argv[1].encode(), 0, 1 << 30)
for number in range(1 << 30):
    pynvml.nvmlDeviceSetMemoryLimits_v1(gpu, limits)
    if number == 100:
        print("at work", flush=True)
"""
MAX = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
Driver = Callable[..., Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user may read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def driver(library: FakeNvml, folder: Path) -> Iterator[Driver]:
    """Return what starts an HGX H100 with more said of it, and gives its first GPU."""
    description = folder / "machine.nvml"
    description.touch()
    with library.loaded(description):

        def start(*lines: str) -> Any:
            description.write_text("\n".join([machine("hgx_h100").read_text(), *lines, ""]))
            pynvml.nvmlInit()
            return pynvml.nvmlDeviceGetHandleByIndex(0)

        yield start


def put(gpu: Any, cgroup: Path | str, hard: int, soft: int = 0) -> int:
    """Set a limit; return NVML's code, 0 for success."""
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(str(cgroup).encode(), soft, hard)
    return code_of(pynvml.nvmlDeviceSetMemoryLimits_v1, gpu, limits)


def told(gpu: Any, cgroup: Path) -> tuple[int, int, int] | int:
    """Return soft, hard and used, or NVML's code."""
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(str(cgroup).encode())
    code = code_of(pynvml.nvmlDeviceGetMemoryLimits_v1, gpu, limits)
    return code or (limits.softLimit, limits.hardLimit, limits.currentUsed)


def code_of(call: Callable[..., object], *arguments: object) -> int:
    """Return NVML's code for a call."""
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


@pytest.mark.slow
def test_drivers_before_r615_have_no_such_call(driver: Driver, folder: Path) -> None:
    """As the binding tells when a symbol is missing."""
    assert put(driver(), folder, 1 << 30) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_limit_is_read_back_with_what_is_used_below(driver: Driver, folder: Path) -> None:
    """Of that GPU and that cgroup only; the maximum with no soft limit clears it."""
    inner = folder / "pod" / "container"
    inner.mkdir(parents=True)
    gpu = driver("limits misc", f"use 0 512 {inner}", f"use 1 64 {inner}", f"use 0 7 {folder}/podium")
    assert put(gpu, folder / "pod", 10 << 30) == 0
    assert told(gpu, folder / "pod") == (0, 10 << 30, 512 << 20)
    assert put(gpu, folder / "pod", MAX) == 0
    assert told(gpu, folder / "pod") == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_dmem_needs_its_files_and_tells_of_no_limit_as_of_the_highest(driver: Driver, folder: Path) -> None:
    """A cgroup without them is not found."""
    gpu = driver("limits dmem")
    assert put(gpu, folder, 1 << 30) == pynvml.NVML_ERROR_NOT_FOUND
    (folder / "dmem.max").touch()
    assert told(gpu, folder) == (0, MAX, 0)


def test_limit_dies_with_its_cgroup(driver: Driver, folder: Path) -> None:
    """And is that of no other."""
    gpu, pod = driver("limits misc"), folder / "pod"
    pod.mkdir()
    put(gpu, pod, 1 << 30)
    pod.rmdir()
    assert told(gpu, pod) == pynvml.NVML_ERROR_NOT_FOUND
    assert put(gpu, pod, 1 << 30) == pynvml.NVML_ERROR_NOT_FOUND


@pytest.mark.slow
def test_no_limit_is_lost_when_a_process_is_killed_that_sets_another_one(
    library: FakeNvml, driver: Driver, folder: Path
) -> None:
    """It is the driver that keeps them."""
    gpu, ours, theirs = driver("limits misc"), folder / "ours", folder / "theirs"
    ours.mkdir()
    theirs.mkdir()
    put(gpu, ours, 1 << 30)
    for _ in range(KILLS):
        command, environment = [sys.executable, "-c", SETS, str(theirs)], library.environment(folder / "machine.nvml")
        with subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.readline()
            process.kill()
        assert told(gpu, ours) == (0, 1 << 30, 0)


def test_what_makes_no_sense_is_refused(driver: Driver, folder: Path) -> None:
    """A path that is not whole, a soft limit above the hard one, a GPU with MIG on."""
    gpu = driver("limits misc", "gpu 1 mig on")
    assert put(gpu, "kubepods", 1 << 30) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert put(gpu, folder, 1, soft=2) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    sliced = pynvml.nvmlDeviceGetHandleByIndex(1)
    assert put(sliced, folder, 1 << 30) == pynvml.NVML_ERROR_NOT_SUPPORTED


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_only_root_sets_and_everybody_reads(driver: Driver, folder: Path) -> None:
    """As the reference says."""
    gpu = driver("limits misc")
    put(gpu, folder, 1 << 30)
    os.seteuid(65534)
    try:
        assert put(gpu, folder, 2 << 30) == pynvml.NVML_ERROR_NO_PERMISSION
        assert told(gpu, folder) == (0, 1 << 30, 0)
    finally:
        os.seteuid(0)
