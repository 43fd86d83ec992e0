"""A script is checked before it is played, and every process that has the library sees the same of it at the same time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.nvml.library import HERE, FakeNvml, has_compiler, machine
from tests.nvml.script import Scripted, UnreadableScript, read_script

_ENERGY_OF_GPU_0 = """
import pynvml, time
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu))
until = time.monotonic() + 60
while pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) != 7 and time.monotonic() < until:
    time.sleep(0.01)
print(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu), time.time())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    """Return the fake library."""
    if not has_compiler():
        pytest.skip("no C compiler to build the fake NVML with")
    return FakeNvml(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[[str], Scripted]:
    """Return a machine of four GPUs with a script."""

    def _scripted(script: str) -> Scripted:
        description = tmp_path / "machine.nvml"
        description.write_text(machine("watched_h100").read_text())
        return Scripted(description, script)

    return _scripted


@contextmanager
def opened(library: FakeNvml, played: Scripted, at: float) -> Iterator[list[Any]]:
    """Initialise NVML at a time of the script; give the GPUs' handles."""
    played.stand(at)
    with library.loaded(played.description):
        pynvml.nvmlInit()
        try:
            yield [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()


def replays(gpu: Any) -> int:
    (value,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER])
    return int(value.value.uiVal)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("xid 3 79", "is not `at SECONDS STATEMENT`"),
        ("at noon xid 3 79", "'noon' is no number"),
        ("at -1 xid 3 79", "'-1' is no time to come"),
        ("at nan xid 3 79", "'nan' is no time to come"),
        ("at 4 xid 3 79", "4 is before the step above, 5"),
        ("at 6 explode 3", "explode is none of xid, rise, heal"),
        ("at 6 xid 3", "xid has 1 words after it in place of 2"),
        ("at 6 xid 3 79 80", "xid has 3 words after it in place of 2"),
        ("at 6 heal all", "'all' is no set of numbers such as 0,2-4"),
        ("at 6 rise 3 pcie_replays 1 until 60", "'until' stands where 'for' has to"),
        ("at 6 hang * 3 soon", "'soon' is no number"),
    ],
)
def test_a_line_that_cannot_be_played_is_named(line: str, reason: str) -> None:
    """With its number, before any machine has it."""
    with pytest.raises(UnreadableScript) as refused:
        read_script(f"# what was before\nat 5 xid 1 31\n{line}\n")
    assert str(refused.value).startswith("line 3: ")
    assert reason in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((HERE / "scripts").glob("*.script")), ids=lambda file: file.stem)
def test_every_script_of_the_collection_plays_to_its_end(
    file: Path, library: FakeNvml, scripted: Callable[[str], Scripted]
) -> None:
    """The library takes each statement; one that it does not know would be an error at initialisation."""
    played = scripted(file.read_text())
    assert played.steps
    with opened(library, played, played.steps[-1].at + 1) as gpus:
        assert len(gpus) >= 3


def test_what_the_library_does_not_know_is_an_error(library: FakeNvml, scripted: Callable[[str], Scripted]) -> None:
    """Only when it is due."""
    played = scripted("at 10 gpu 0 colour red\n")
    with opened(library, played, 9.9):
        pass
    with pytest.raises(pynvml.NVMLError), opened(library, played, 10):
        pass


def test_a_counter_rises_by_the_clock_and_stops(library: FakeNvml, scripted: Callable[[str], Scripted]) -> None:
    """From its time on, for as long as it is said; a reset begins what counts since the driver was loaded anew."""
    played = scripted("at 10 rise 2 pcie_replays 5 for 100\nat 200 reset 2\nat 300 rise 2 pcie_replays 1 for 10\n")
    found = []
    for at in (0, 10, 50, 110, 199, 200, 304, 400):
        with opened(library, played, at) as gpus:
            found.append(replays(gpus[2]))
            assert replays(gpus[1]) == 0
    assert found == [0, 0, 200, 500, 500, 0, 4, 10]


def test_a_reset_clears_what_a_reset_clears(library: FakeNvml, scripted: Callable[[str], Scripted]) -> None:
    """Energy, the driver's wish, what failed; what the GPU remembers for ever stays."""
    played = scripted(
        "at 1 gpu 1 recovery_action 1\nat 1 gpu 1 remap_failure 1\nat 1 fail nvmlDeviceGetEccMode 1 UNKNOWN\nat 5 reset 1\n"
    )
    with opened(library, played, 5) as gpus:
        (action,) = pynvml.nvmlDeviceGetFieldValues(gpus[1], [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
        assert action.value.uiVal == 0
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpus[1]) == 0
        assert pynvml.nvmlDeviceGetEccMode(gpus[1]) == [1, 1]
        assert pynvml.nvmlDeviceGetRemappedRows(gpus[1])[3] == 1


def test_gpu_that_is_removed_leaves_its_index_to_the_next(
    library: FakeNvml, scripted: Callable[[str], Scripted]
) -> None:
    """With its name, its errors, and what fails of it."""
    played = scripted("at 1 gpu 2 margin 3\nat 1 fail nvmlDeviceGetEccMode 3 UNKNOWN\nat 2 remove 1\n")
    with opened(library, played, 2) as gpus:
        assert [pynvml.nvmlDeviceGetUUID(gpu)[-1] for gpu in gpus] == ["0", "2", "3"]
        assert pynvml.nvmlDeviceGetMarginTemperature(gpus[1]) == 3
        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceGetEccMode(gpus[2])
        assert pynvml.nvmlDeviceGetEccMode(gpus[1]) == [1, 1]


def test_driver_that_is_gone_comes_back(library: FakeNvml, scripted: Callable[[str], Scripted]) -> None:
    """In the middle."""
    played = scripted("at 5 init DRIVER_NOT_LOADED\nat 9 init SUCCESS\n")
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded), opened(library, played, 5):
        pass
    with opened(library, played, 9) as gpus:
        assert len(gpus) == 4


def test_each_error_is_delivered_once_when_it_is_due(library: FakeNvml, scripted: Callable[[str], Scripted]) -> None:
    """To every set that was there before; those of GPUs that a set is not registered for pass it by."""
    played = scripted("at 1 xid 3 31\nat 5 xid 3 79\nat 5 xid 2 48\nat 6 xid 3 95\n")
    with opened(library, played, 2) as gpus:
        first, second = pynvml.nvmlEventSetCreate(), pynvml.nvmlEventSetCreate()
        for events in (first, second):
            pynvml.nvmlDeviceRegisterEvents(gpus[3], pynvml.nvmlEventTypeXidCriticalError, events)
        with pytest.raises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait_v2(first, 20)
        played.stand(6)
        for events in (first, second):
            assert [pynvml.nvmlEventSetWait_v2(events, 1000).eventData for _ in range(2)] == [79, 95]
            with pytest.raises(pynvml.NVMLError_Timeout):
                pynvml.nvmlEventSetWait_v2(events, 20)


@pytest.mark.slow
def test_processes_that_have_it_open_see_it_happen_together(
    library: FakeNvml, scripted: Callable[[str], Scripted]
) -> None:
    """By the clock alone: nobody tells them, and nobody initialises again."""
    played = scripted("at 100 gpu 0 energy_mj 7\n")
    began = time.time()
    played.begin(speed=20)
    command, environment = [sys.executable, "-c", _ENERGY_OF_GPU_0], library.environment(played.description)
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [process.communicate(timeout=90)[0].split() for process in both]
    assert [energy for energy, *_ in ends] == ["1000000", "1000000"]
    assert [energy for _, energy, _ in ends] == ["7", "7"]
    assert all(float(at) >= began + 5 for *_, at in ends)
