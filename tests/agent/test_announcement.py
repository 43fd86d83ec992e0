"""What people are told when a GPU's health changes: each change once, in a sentence that equal cases share."""

from __future__ import annotations

import pytest

from agent.health.announcement import Announcement, announce, announce_links
from agent.health.evidence import (
    Back,
    Cleared,
    Cordoned,
    Evidence,
    Lost,
    RecoveryAction,
    RecoveryRequested,
    RemapFailed,
    Xid,
)
from agent.health.links import LinkChange
from agent.health.memory import HealthMemory, decode_memory, encode_memory
from agent.health.node import HealthMachine
from agent.health.policy import HealthPolicy
from agent.health.record import State

UUID = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
HOUR = 3600.0


class Life:
    """One GPU, index 3, that is looked at every second."""

    def __init__(self) -> None:
        self.node = HealthMachine(HealthPolicy())
        self.node.has([UUID])
        self.now = 1000.0

    def told(self, *evidence: Evidence) -> list[Announcement]:
        for each in evidence:
            self.node.told(UUID, each, self.now)
        return self.after(0.4)

    def after(self, seconds: float) -> list[Announcement]:
        self.now += seconds
        return [announce(change, 3, self.now) for change in self.node.changes(self.now)]


@pytest.mark.parametrize(
    ("evidence", "reason", "note"),
    [
        (
            (Xid(74),),
            "GPUQuarantined",
            "takes no new pods: xid 74. Next: it opens by itself, in 5 minutes. Pods that run on it go on",
        ),
        (
            (Xid(79),),
            "GPUQuarantined",
            (
                "takes no new pods: xid 79, needs a reset. Next: it opens when a reset is proven. "
                "To do: drain the node and reboot it. Pods that run on it go on"
            ),
        ),
        (
            (Lost(),),
            "GPUQuarantined",
            (
                "takes no new pods: gpu is lost. Next: it opens when it answers again. "
                "To do: drain the node and reboot it. Pods that run on it go on"
            ),
        ),
        (
            (RecoveryRequested(RecoveryAction.GPU_RESET),),
            "GPUQuarantined",
            (
                "takes no new pods: the driver asks for: gpu reset. Next: it opens when the driver asks no more for: gpu reset. "
                "To do: drain the node and do that. Pods that run on it go on"
            ),
        ),
        (
            (Cordoned("cordoned: fan is loud (anna)"),),
            "GPUQuarantined",
            (
                "takes no new pods: cordoned: fan is loud (anna). Next: it stays out. To do: kubectl gputopo uncordon-gpu. "
                "Pods that run on it go on"
            ),
        ),
        (
            (RemapFailed(),),
            "GPUFailed",
            (
                "has failed, and takes no new pods: row remap failed. Next: it stays out. "
                "To do: replace it, or say that it is well: kubectl gputopo clear-gpu. Pods that run on it go on"
            ),
        ),
        (
            (RecoveryRequested(RecoveryAction.DRAIN_P2P),),
            "GPUSuspect",
            (
                "is suspect, and takes pods all the same: the driver asks for: drain p2p. "
                "Next: it is healthy when that is over. To do: see whether programs, cooling or the GPU are at fault"
            ),
        ),
    ],
)
def test_a_change_is_told_with_why_what_comes_and_what_to_do(
    evidence: tuple[Evidence, ...], reason: str, note: str
) -> None:
    """Which GPU it is stands first, as `nvidia-smi` counts it and as the driver names it."""
    found = Life().told(*evidence)
    assert found == [Announcement(reason, f"GPU 3 (GPU-1a2b3c4d) {note}", is_warning=True)]


def test_what_changes_nothing_is_not_told() -> None:
    """The errors of one program, and notices."""
    assert Life().told(Xid(31), Xid(43), Xid(63)) == []


def test_the_way_back_is_told_too() -> None:
    """Neither of its two steps is a warning."""
    life = Life()
    life.told(Xid(74))
    [opened] = life.after(300)
    assert (opened.reason, opened.is_warning) == ("GPUProbation", False)
    assert opened.note.endswith("on probation: xid 74. Next: it is healthy if nothing happens, in 60 minutes")
    assert life.after(HOUR) == [Announcement("GPURecovered", "GPU 3 (GPU-1a2b3c4d) is healthy again", False)]


def test_a_change_is_told_once() -> None:
    """However often somebody looks, and over a restart of the agent."""
    life = Life()
    assert life.told(Xid(79))
    assert life.after(1) == []
    life.node = HealthMachine(HealthPolicy(), decode_memory(encode_memory(HealthMemory(dict(life.node.records)))).gpus)
    assert life.after(1) == []
    assert [each.reason for each in life.told(Cleared())] == ["GPURecovered"]


def test_a_worse_outlook_is_told_though_the_state_is_the_same() -> None:
    """Who read that it opens by itself must hear that it does not."""
    life = Life()
    life.told(Xid(74))
    [worse] = life.told(Xid(79))
    assert "needs a reset" in worse.note
    assert life.told(Xid(62)) == []


def test_equal_cases_give_equal_sentences() -> None:
    """So they can be counted: the same error on another day, looked at a little later."""
    life = Life()
    first = life.told(Xid(74))
    life.after(30 * 24 * HOUR)
    life.now += 0.5
    assert life.told(Xid(74)) == first


def test_only_a_gpu_that_is_closed_through_itself_is_sick() -> None:
    """A person's cordon is no sickness; what lies under it is, and keeps its date."""
    life = Life()

    def sick_since() -> float | None:
        return life.node.verdict(UUID, life.now).sick_since

    life.told(Cordoned("cordoned"))
    assert sick_since() is None
    life.now = 2000.0
    life.told(Lost())
    assert sick_since() == 2000.0
    life.told(Cordoned(""))
    assert sick_since() == 2000.0
    life.told(Back())
    life.after(300)
    assert life.node.verdict(UUID, life.now).state is State.PROBATION
    assert sick_since() is None


@pytest.mark.parametrize(
    ("links", "are_used", "expected"),
    [
        (
            (4,),
            False,
            Announcement(
                "NVLinkDown",
                "NVLink 4 of GPU 3 (GPU-1a2b3c4d) is down: rings of new pods do without, and less bandwidth is predicted. "
                "Next: used again after 5 minutes up. To do: where it stays down, drain the node and reset the GPU",
                is_warning=True,
            ),
        ),
        (
            (4, 5, 11),
            True,
            Announcement(
                "NVLinkRecovered",
                "NVLinks 4, 5, 11 of GPU 3 (GPU-1a2b3c4d) are used again, after 5 minutes without a fault",
                is_warning=False,
            ),
        ),
    ],
)
def test_links_are_told_by_number_with_what_comes_next(
    links: tuple[int, ...], are_used: bool, expected: Announcement
) -> None:
    """A GPU's links together; the time is the policy's."""
    assert announce_links(LinkChange(UUID, links, are_used), 3, HealthPolicy()) == expected
