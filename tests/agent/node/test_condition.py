"""The node's condition says whether its GPUs are healthy, is written when that changes, and outlives the agent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ApiError
from agent.gpus.discovery import NodeDiscovery
from agent.node.condition import MAX_MESSAGE_CHARACTERS, ConditionKeeper, GpuCondition, gpus_healthy
from tests.agent.builders import discovery
from topology.annotations import keys
from topology.node.status import GpuStatus, Outlook

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


class Port:
    """A Node's conditions in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}
        self.writes = 0
        self.failure: ApiError | None = None

    @property
    def condition(self) -> GpuCondition | None:
        found = self.stored
        return GpuCondition(found["status"], found["reason"], found["message"]) if found else None

    def write_condition(self, fields: dict[str, Any]) -> None:
        self.writes += 1
        if self.failure:
            raise self.failure
        self.stored |= fields


class Life:
    """An agent's condition on virtual time."""

    def __init__(self, port: Port) -> None:
        self.now = 0.0
        self.hour = 12
        self._keeper = ConditionKeeper(port, lambda: self.now, lambda: NOON.replace(hour=self.hour))

    def show(self, *gpus: GpuStatus) -> None:
        self._keeper.show(of(*gpus))


def of(*gpus: GpuStatus) -> NodeDiscovery:
    """Return a node with these GPUs."""
    found = discovery(gpus=max(1, len(gpus)))
    named = tuple(replace(gpu, uuid=f"GPU-{number}") for number, gpu in enumerate(gpus))
    return replace(found, status=replace(found.status, gpus=named))


WELL = GpuStatus("")
SICK = GpuStatus("", healthy=False, reasons=("xid 79, needs a reset",), sick_since=7, outlook=Outlook("it opens"))
FAILED = GpuStatus("", healthy=False, reasons=("failed: row remap failed",), sick_since=7, outlook=Outlook("it stays"))
CORDONED = GpuStatus("", healthy=False, reasons=("cordoned by jo",), outlook=Outlook("it stays out"))
UNSEEN = GpuStatus("", healthy=False, reasons=("nvml unavailable: DRIVER_NOT_LOADED",))
SUSPECT = GpuStatus(
    "", reasons=("suspect: slowed down by heat or power",), outlook=Outlook("it is healthy when that is over")
)
PROBATION = GpuStatus("", reasons=("on probation: xid 74",), outlook=Outlook("it is healthy if nothing happens"))


@pytest.mark.parametrize(
    ("gpus", "status", "reason"),
    [
        ((WELL, WELL), "True", "NoGPUSick"),
        ((WELL, SUSPECT), "True", "NoGPUSick"),
        ((PROBATION, WELL), "True", "NoGPUSick"),
        ((CORDONED, WELL), "True", "NoGPUSick"),
        ((WELL, SICK), "False", "GPUsSick"),
        ((FAILED, WELL), "False", "GPUsSick"),
        ((UNSEEN, SICK), "False", "GPUsSick"),
        ((UNSEEN, UNSEEN), "Unknown", "GPUsNotSeen"),
    ],
)
def test_it_is_false_while_a_gpu_is_quarantined_or_failed(
    gpus: tuple[GpuStatus, ...], status: str, reason: str
) -> None:
    """Not for one that takes pods, nor for one that a person took out; unknown where the driver does not answer."""
    told = gpus_healthy(of(*gpus))
    assert (told.status, told.reason) == (status, reason)


def test_it_names_each_gpu_and_why() -> None:
    """As people and nvidia-smi call it."""
    assert gpus_healthy(of(SICK, WELL, FAILED)).message == (
        "GPU 0 (GPU-0): xid 79, needs a reset. GPU 2 (GPU-2): failed: row remap failed"
    )


def test_it_is_never_longer_than_the_policy_allows() -> None:
    """However many GPUs fell sick at once, for however many reasons."""
    wordy = replace(SICK, reasons=("x" * 300,) * 4)
    assert len(gpus_healthy(of(*[wordy] * 24)).message) == MAX_MESSAGE_CHARACTERS


def test_nothing_new_writes_nothing_also_after_a_restart() -> None:
    """There is no heartbeat, and an agent that starts finds what an earlier one wrote."""
    port = Port()
    for life in (Life(port), Life(port)):
        for _ in range(10):
            life.show(WELL, SICK)
    assert port.writes == 1


def test_the_time_of_the_turn_is_that_of_the_status() -> None:
    """One more sick GPU is news and no turn; the last one's recovery is."""
    port = Port()
    life = Life(port)
    seen = []
    for hour, gpus in ((12, (SICK, WELL)), (13, (SICK, SICK)), (14, (WELL, WELL))):
        life.hour = hour
        life.show(*gpus)
        seen.append((port.stored["lastTransitionTime"], port.stored["lastHeartbeatTime"]))
    noon, one, two = (f"2026-11-23T{hour}:00:00Z" for hour in (12, 13, 14))
    assert seen == [(noon, noon), (noon, one), (two, two)]
    assert port.stored["type"] == keys.GPUS_HEALTHY


def test_a_write_that_fails_is_tried_again_a_minute_later() -> None:
    """Not with each look: an agent without the right would ask for ever."""
    port = Port()
    port.failure = ApiError(403, "forbidden")
    life = Life(port)
    for life.now in (0.0, 1.0, 59.0, 60.0, 61.0):
        life.show(SICK)
    assert port.writes == 2
    port.failure = None
    life.now = 121.0
    life.show(SICK)
    assert port.stored["status"] == "False"


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from([WELL, SICK, FAILED, CORDONED, UNSEEN, SUSPECT]), min_size=1, max_size=4)))
def test_the_node_always_says_what_holds_and_each_write_is_news(course: list[list[GpuStatus]]) -> None:
    """In any course of events, with a restart between any two."""
    port = Port()
    said: list[GpuCondition] = []
    for gpus in course:
        before = port.writes
        Life(port).show(*gpus)
        assert port.condition == gpus_healthy(of(*gpus))
        if port.writes > before:
            said.append(gpus_healthy(of(*gpus)))
    assert all(one != other for one, other in pairwise(said))
