"""N4: of the critical errors that happen none is lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.critical_errors import Coverage, CriticalError
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.xid_watch import XidWatch
from agent.gpus.nvml.xid_events import follow_xids
from agent.health.policy import HealthPolicy
from tests.extender.polling import until
from tests.nvml.library import FakeNvml


@pytest.fixture
def listening(fake_nvml: FakeNvml) -> Iterator[Callable[[Path], Iterator[Coverage | CriticalError | None]]]:
    """Return what listens to a described machine through the real binding."""
    with ExitStack() as stack:

        def _listening(description: Path) -> Iterator[Coverage | CriticalError | None]:
            stack.enter_context(fake_nvml.loaded(description))
            return stack.enter_context(closing(follow_xids()))

        yield _listening


Described = Callable[..., Path]
Listening = Callable[[Path], Iterator[Coverage | CriticalError | None]]
UUID3 = "GPU-41000000-0000-4000-8000-000000000003"


def happen(description: Path, *errors: str) -> None:
    """Let these errors, `GPU XID`, happen on the described machine."""
    with Path(f"{description}.xids").open("a") as file:
        file.writelines(f"{error}\n" for error in errors)


def test_n4_of_ten_thousand_errors_none_is_lost(described: Described, listening: Listening) -> None:
    """Each arrives, in order, with the GPU that it is of; what was before we listened does not."""
    machine = described("hgx_h100")
    happen(machine, "0 79")
    told = listening(machine)
    assert next(told) == Coverage()
    happen(machine, *(f"3 {number}" for number in range(10_000)))
    assert list(islice(told, 10_000)) == [CriticalError(UUID3, number) for number in range(10_000)]


def test_gpu_that_tells_no_errors_is_named(described: Described, listening: Listening) -> None:
    """By NVML's code; the others are listened to."""
    machine = described("hgx_h100", "fail nvmlDeviceRegisterEvents 0 NOT_SUPPORTED")
    told = listening(machine)
    assert next(told) == Coverage(("NOT_SUPPORTED",))
    happen(machine, "3 79")
    assert next(told) == CriticalError(UUID3, 79)


def test_error_of_a_gpu_that_has_lost_its_name_is_told(described: Described, listening: Listening) -> None:
    """Somebody has to look which one it is."""
    machine = described("hgx_h100", "fail nvmlDeviceGetUUID 3 GPU_IS_LOST")
    told = listening(machine)
    next(told)
    happen(machine, "3 79")
    assert next(told) == CriticalError("", 79)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["missing nvmlEventSetCreate", "init DRIVER_NOT_LOADED"])
def test_driver_without_events_is_unavailable(line: str, described: Described, listening: Listening) -> None:
    """An old one, or none."""
    with pytest.raises(NvmlUnavailable):
        next(listening(described("hgx_h100", line)))


async def test_listener_says_how_well_it_hears_and_has_the_agent_discover() -> None:
    """When it begins, when a GPU gets an error, when NVML fails; a failure is tried again after a while."""
    health, discoveries = GpuHealth(lambda: 0.0, HealthPolicy()), list[Coverage | None]()

    def follow() -> Generator[Coverage | CriticalError | None, None, None]:
        yield Coverage()
        yield from (
            None,
            CriticalError("GPU-0", 13),
            CriticalError("GPU-0", 79),
            CriticalError("GPU-0", 79),
            CriticalError("", 79),
        )
        raise NvmlUnavailable("GPU_IS_LOST", "while we waited")

    watch = XidWatch(follow, health, lambda: discoveries.append(health.coverage))
    watch.start()
    await until(lambda: len(discoveries) == 4)
    watch.close()
    assert discoveries == [Coverage(), Coverage(), Coverage(), Coverage(("GPU_IS_LOST",))]
