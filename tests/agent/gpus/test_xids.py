"""N4 and N6: which critical errors make a GPU unhealthy, for how long, and that none is lost on the way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.nvml_events import follow_xids
from agent.gpus.xid_watch import XidWatch
from agent.gpus.xids import NEEDS_RESET, Coverage, Xid, Xids
from tests.agent.builders import discovery
from tests.extender.polling import until
from tests.nvml.library import FakeNvml

RECOVERY = 300.0


class Life:
    """Two healthy GPUs, `GPU-0` and `GPU-1`, on virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.xids = Xids(lambda: self.now, RECOVERY)

    def has(self, uuid: str, number: int) -> bool:
        return self.xids.happened(Xid(uuid, number))

    @property
    def unhealthy(self) -> frozenset[str]:
        return self.xids.marked(discovery().status).unhealthy


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 69, 94, 109, 137, 63, 92, 121, 154, 160, 165, 171, 172])
def test_n4_errors_that_leave_a_gpu_usable_leave_it_alone(number: int) -> None:
    """A program that reads where it must not is not the GPU's fault, and a notice is no error at all."""
    life = Life()
    assert not life.has("GPU-0", number)
    assert life.unhealthy == frozenset()


@pytest.mark.parametrize("number", [74, 79, 0, 12345])
def test_n4_every_other_error_makes_the_gpu_unhealthy(number: int) -> None:
    """Those that nobody knows, too; and the GPU beside it stays what it was."""
    life = Life()
    assert life.has("GPU-0", number)
    assert life.unhealthy == {"GPU-0"}
    assert life.xids.marked(discovery().status).gpus[0].reasons == (f"xid {number}",)


def test_n6_gpu_without_an_error_for_long_enough_is_healthy_again() -> None:
    """Counted from the last one."""
    life = Life()
    life.has("GPU-0", 79)
    life.now = 200.0
    assert not life.has("GPU-0", 79)
    life.now = 200.0 + RECOVERY - 1
    assert life.unhealthy == {"GPU-0"}
    life.now = 200.0 + RECOVERY
    assert life.unhealthy == frozenset()
    assert life.has("GPU-0", 79)


@pytest.mark.parametrize("number", sorted(NEEDS_RESET))
def test_n6_time_does_not_cure_what_needs_a_reset(number: int) -> None:
    """And says so; what happened before it, or happens after, changes nothing."""
    life = Life()
    life.has("GPU-0", 79)
    life.has("GPU-0", number)
    life.now = 100 * RECOVERY
    life.has("GPU-0", 79)
    assert life.xids.marked(discovery().status).gpus[0].reasons == (f"xid {number}, needs a reset",)
    assert life.unhealthy == {"GPU-0"}


def test_n6_gpu_that_has_many_errors_is_one_change() -> None:
    """Each other reason would be a write to the node."""
    life = Life()
    told = set()
    for number in (79, 74, 94) * 3_333:
        life.now += 1.0
        life.has("GPU-0", number)
        told.add(life.xids.marked(discovery().status))
    assert len(told) == 1


def test_what_nvml_says_besides_keeps_a_gpu_unhealthy() -> None:
    """The time that has passed says nothing about a GPU that is lost."""
    life = Life()
    life.has("GPU-0", 79)
    life.now = RECOVERY
    assert life.xids.marked(discovery(healthy=False).status).unhealthy == {"GPU-0", "GPU-1"}


def test_errors_that_are_not_told_are_said_not_to_be() -> None:
    """On the node's status, with NVML's reason; not before anybody has tried."""
    life = Life()
    assert life.xids.marked(discovery().status).reasons == ()
    life.xids.coverage = Coverage(("NOT_SUPPORTED",))
    assert life.xids.marked(discovery().status).reasons == ("critical errors are not told: NOT_SUPPORTED",)


@pytest.fixture
def listening(fake_nvml: FakeNvml) -> Iterator[Callable[[Path], Iterator[Coverage | Xid | None]]]:
    """Return what listens to a described machine through the real binding."""
    with ExitStack() as stack:

        def _listening(description: Path) -> Iterator[Coverage | Xid | None]:
            stack.enter_context(fake_nvml.loaded(description))
            return stack.enter_context(closing(follow_xids()))

        yield _listening


Described = Callable[..., Path]
Listening = Callable[[Path], Iterator[Coverage | Xid | None]]
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
    assert list(islice(told, 10_000)) == [Xid(UUID3, number) for number in range(10_000)]


def test_gpu_that_tells_no_errors_is_named(described: Described, listening: Listening) -> None:
    """By NVML's code; the others are listened to."""
    machine = described("hgx_h100", "fail nvmlDeviceRegisterEvents 0 NOT_SUPPORTED")
    told = listening(machine)
    assert next(told) == Coverage(("NOT_SUPPORTED",))
    happen(machine, "3 79")
    assert next(told) == Xid(UUID3, 79)


def test_error_of_a_gpu_that_has_lost_its_name_is_told(described: Described, listening: Listening) -> None:
    """Somebody has to look which one it is."""
    machine = described("hgx_h100", "fail nvmlDeviceGetUUID 3 GPU_IS_LOST")
    told = listening(machine)
    next(told)
    happen(machine, "3 79")
    assert next(told) == Xid("", 79)


@pytest.mark.parametrize("line", ["missing nvmlEventSetCreate", "init DRIVER_NOT_LOADED"])
def test_driver_without_events_is_unavailable(line: str, described: Described, listening: Listening) -> None:
    """An old one, or none."""
    with pytest.raises(NvmlUnavailable):
        next(listening(described("hgx_h100", line)))


async def test_listener_says_how_well_it_hears_and_has_the_agent_discover() -> None:
    """When it begins, when a GPU gets an error, when NVML fails; a failure is tried again after a while."""
    xids, discoveries = Xids(lambda: 0.0, RECOVERY), list[Coverage | None]()

    def follow() -> Generator[Coverage | Xid | None, None, None]:
        yield Coverage()
        yield from (None, Xid("GPU-0", 13), Xid("GPU-0", 79), Xid("GPU-0", 79), Xid("", 79))
        raise NvmlUnavailable("GPU_IS_LOST", "while we waited")

    watch = XidWatch(follow, xids, lambda: discoveries.append(xids.coverage))
    watch.start()
    await until(lambda: len(discoveries) == 4)
    watch.close()
    assert discoveries == [Coverage(), Coverage(), Coverage(), Coverage(("GPU_IS_LOST",))]
