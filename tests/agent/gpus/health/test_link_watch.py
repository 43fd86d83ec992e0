"""An NVLink that goes down is left out at once, and used again when it has been up for five minutes; people are told both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.gpus.discovery import NOTHING, NodeDiscovery
from agent.gpus.facts import Answer, FarEnd, Gap, Known, Missing, NvLink
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.health_file import HealthFile
from agent.gpus.health.link_watch import DOWN, NOT_YET
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvlinks import Downgrade
from agent.gpus.nvml.reader import read_nvml
from agent.health.links import LinkChange
from agent.health.policy import HealthPolicy
from tests.agent.builders import gpu_facts, machine_of
from tests.nvml.library import FakeNvml, machine
from topology.node.status import LinkFault

A100 = "GPU-a1000000-0000-4000-8000-00000000000"
UP = HealthPolicy().link_up


class Life:
    """The agent's view of a machine that changes, on virtual time."""

    def __init__(self, fake: FakeNvml, folder: Path, name: str, *, boot: str = "boot-1", now: float = 0.0) -> None:
        self.now = now
        self._fake, self._folder, self._name = fake, folder, name
        self.file = HealthFile(folder)
        self.told: list[LinkChange] = []
        health = GpuHealth(
            lambda: self.now,
            HealthPolicy(),
            self.file,
            boot,
            tell_links=lambda change, index: self.told.append(change) if index is not None else None,
        )
        self._machine = GpuMachine(read_nvml, Host(folder / "nowhere", folder / "nowhere"), health)
        self._before = NOTHING

    def look(self, *lines: str, after: float = 0.0) -> NodeDiscovery:
        """Discover the machine with these lines added to its description, so many seconds later."""
        self.now += after
        described = self._folder / "machine.nvml"
        described.write_text("\n".join([machine(self._name).read_text(), *lines, ""]))
        with self._fake.loaded(described):
            self._before = self._machine.discover(self._before)
        return self._before

    def restarted(self, boot: str = "boot-1") -> Life:
        self.file.close()
        return Life(self._fake, self._folder, self._name, boot=boot, now=self.now)


@pytest.fixture
def a100(fake_nvml: FakeNvml, tmp_path: Path) -> Life:
    """Return the life of a DGX A100."""
    return Life(fake_nvml, tmp_path, "dgx_a100")


def switch_links(found: NodeDiscovery) -> list[int]:
    return [gpu.switch_links for gpu in found.topology.gpus]


def test_a_link_that_goes_down_is_left_out_at_once_and_only_there(a100: Life) -> None:
    """Eleven of twelve are left on that GPU, and each pair with it says why it is worth less."""
    assert switch_links(a100.look()) == [12] * 8
    found = a100.look("link 2 9 inactive")
    assert switch_links(found) == [12, 12, 11, 12, 12, 12, 12, 12]
    assert found.topology.label(2, 5) == "NV11" and found.topology.label(0, 5) == "NV12"
    assert found.topology.pairs[2, 5].reason == Downgrade.LINK_DOWN
    assert all(gpu.healthy and not gpu.doubtful for gpu in found.status.gpus)


def test_it_is_used_again_when_it_has_been_up_for_five_minutes(a100: Life) -> None:
    """Until then it counts as down, whatever NVML says; the status says since when, and from when on."""
    a100.look()
    down = a100.look("link 2 9 inactive", after=100)
    assert down.status.link_faults == (LinkFault(f"{A100}2", 9, DOWN, since=100),)
    up = a100.look(after=60)
    assert up.status.link_faults == (LinkFault(f"{A100}2", 9, NOT_YET, since=100, until=160 + int(UP)),)
    assert switch_links(up)[2] == 11
    assert switch_links(a100.look(after=UP - 1))[2] == 11
    well = a100.look(after=1)
    assert (switch_links(well), well.status.link_faults) == ([12] * 8, ())


@pytest.mark.slow
def test_a_link_that_flaps_is_one_fault_from_its_first_fall_on(a100: Life) -> None:
    """Each fall starts the five minutes anew; people are told that it went and that it is back, and not each time."""
    a100.look()
    for _ in range(10):
        assert switch_links(a100.look("link 2 9 inactive", after=60))[2] == 11
        fault = a100.look(after=60).status.link_faults[0]
        assert (fault.since, fault.until) == (60, int(a100.now + UP))
    a100.look(after=UP)
    assert a100.told == [LinkChange(f"{A100}2", (9,), are_used=False), LinkChange(f"{A100}2", (9,), are_used=True)]
    a100.look("link 2 9 inactive", after=60)
    assert len(a100.told) == 3


def test_links_of_one_gpu_are_told_together(a100: Life) -> None:
    """A GPU that loses five is one sentence."""
    a100.look()
    a100.look("link 2 5-9 inactive", "link 4 0 inactive")
    assert a100.told == [
        LinkChange(f"{A100}2", (5, 6, 7, 8, 9), are_used=False),
        LinkChange(f"{A100}4", (0,), are_used=False),
    ]


def test_the_next_agent_remembers_how_long_a_link_has_been_up(a100: Life) -> None:
    """And what people were told: a restart is no way to use a link sooner, and tells nothing twice."""
    a100.look()
    a100.look("link 2 9 inactive", after=60)
    a100.look(after=60)
    after = a100.restarted()
    assert switch_links(after.look(after=UP - 1))[2] == 11
    assert after.told == []
    assert switch_links(after.look(after=1))[2] == 12
    assert after.told == [LinkChange(f"{A100}2", (9,), are_used=True)]


def test_a_reboot_makes_no_sick_link_well(a100: Life) -> None:
    """It comes up like all others, and has to stay up before it counts."""
    a100.look()
    a100.look("link 2 9 inactive", after=60)
    after = a100.restarted("boot-2")
    assert switch_links(after.look(after=600))[2] == 11
    assert switch_links(after.look(after=UP))[2] == 12


def test_a_bridge_that_was_taken_out_is_missed_until_the_next_boot(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """A link that no GPU has up was a fault only because it had been up."""
    life, gone = Life(fake_nvml, tmp_path, "dgx_a100"), "link 0-7 9 inactive"
    life.look()
    assert len(life.look(gone, after=60).status.link_faults) == 8
    life = life.restarted()
    assert len(life.look(gone, after=60).status.link_faults) == 8
    assert life.restarted("boot-2").look(gone, after=600).status.link_faults == ()


def test_links_in_training_after_a_start_are_used_as_soon_as_they_are_up(a100: Life) -> None:
    """They have not been up yet, on no GPU: no fault, no word, and nothing to wait for."""
    found = a100.look("link 0-7 0-11 inactive")
    assert (switch_links(found), found.status.link_faults) == ([0] * 8, ())
    assert switch_links(a100.look(after=30)) == [12] * 8
    assert a100.told == []


def test_a_link_that_is_dead_when_the_agent_begins_is_told(a100: Life) -> None:
    """The GPU's siblings have it up; the time when it went down is not known, but when it was first seen so."""
    found = a100.look("link 2 9 inactive", after=50)
    assert found.status.link_faults == (LinkFault(f"{A100}2", 9, DOWN, since=50),)
    assert a100.told == [LinkChange(f"{A100}2", (9,), are_used=False)]
    assert switch_links(a100.look(after=60))[2] == 11


def test_both_ends_of_a_straight_link_wait(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """On a DGX-1V the pair 0 and 3 has lost its two links; no other pair is worth less."""
    life = Life(fake_nvml, tmp_path, "dgx1v")
    whole = life.look().topology
    hurt = life.look("link 0 2-3 inactive", "link 3 0-1 inactive", after=60).topology
    differ = [(i, j) for i in range(8) for j in range(i) if whole.nvlinks(i, j) != hurt.nvlinks(i, j)]
    assert (whole.nvlinks(0, 3), hurt.nvlinks(0, 3), differ) == (2, 0, [(3, 0)])
    assert life.look(after=60).topology == hurt
    assert life.look(after=UP).topology == whole


def test_the_only_bridge_of_two_gpus_is_missed_though_no_sibling_has_one(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """Because it was there before: a card that never had its bridge has nothing wrong."""
    life = Life(fake_nvml, tmp_path, "dead_bridge_links")
    before = len(life.look().status.link_faults)
    down = life.look(
        "link 0 0-3 inactive", "link 1 0-3 inactive", "link 2 0-3 inactive", "link 3 0-3 inactive", after=60
    )
    assert len(down.status.link_faults) == before + 16


def test_what_nvml_does_not_say_changes_nothing() -> None:
    """A link of which nothing is told now is neither down nor up; one that waits goes on waiting."""
    now = 0.0
    health = GpuHealth(lambda: now, HealthPolicy())
    silent = Missing(Gap.FAILED, "UNKNOWN")

    def usable(active: Answer[bool]) -> Answer[bool]:
        gpu = gpu_facts(uuid=Known("GPU-0"), nvlinks=Known((NvLink(0, active, silent, None),)))
        (found,) = health.usable(replace(machine_of("GPU-0"), gpus=(Known(gpu),))).gpus
        assert isinstance(found, Known) and isinstance(found.value.nvlinks, Known)
        return found.value.nvlinks.value[0].active

    assert usable(Known(True)) == Known(True)
    assert usable(silent) == silent
    assert usable(Known(False)) == Known(False)
    assert usable(silent) == silent
    assert usable(Known(True)) == Known(False)
    now = UP
    assert usable(Known(True)) == Known(True)


def test_a_gpu_without_a_name_or_whose_links_are_not_told_is_left_as_it_is() -> None:
    """There is nothing to remember it by."""
    health = GpuHealth(lambda: 0.0, HealthPolicy())
    nameless = Known(gpu_facts(nvlinks=Known((NvLink(0, Known(True), Known(FarEnd.SWITCH), None),))))
    facts = replace(
        machine_of("GPU-0"), gpus=(nameless, Missing(Gap.LOST, "GPU_IS_LOST"), Known(gpu_facts(uuid=Known("GPU-1"))))
    )
    assert health.usable(facts) == facts
