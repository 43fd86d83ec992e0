"""The health file survives a kill and a power cut at any point: it is always one that was written whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.gpus.health.health_file import HealthFile
from agent.health.memory import Memory
from agent.health.record import GpuRecord

BEFORE, AFTER = Memory(boot="before"), Memory(boot="after")


def keep(folder: Path, memory: Memory) -> None:
    """Write a memory, and wait until the disk has it."""
    file = HealthFile(folder)
    file.keep(memory)
    file.close()


def kept(folder: Path) -> Memory:
    """Return what the next agent reads."""
    file = HealthFile(folder)
    try:
        return file.load()
    finally:
        file.close()


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    """The newest; nothing where nothing was kept."""
    assert kept(tmp_path) == Memory()
    for memory in (BEFORE, AFTER):
        keep(tmp_path, memory)
        assert kept(tmp_path) == memory


def test_times_are_bounded_and_counters_are_not(tmp_path: Path) -> None:
    """A GPU spends a petajoule in millijoules; a time beyond the calendar would close the node's status."""
    spent = Memory(gpus={"GPU-a": GpuRecord(energy_mark=10**18, uncorrected=2**40)})
    keep(tmp_path, spent)
    assert kept(tmp_path) == spent
    for seconds in (1e11, 1e300, -1e300):
        keep(tmp_path, Memory(gpus={"GPU-a": GpuRecord(suspect_until=seconds)}))
        assert kept(tmp_path) == Memory()


def test_the_file_is_not_written_in_place(tmp_path: Path) -> None:
    """A reader that has the old one open reads the old one to its end."""
    keep(tmp_path, BEFORE)
    with (tmp_path / "health.json").open("rb") as opened:
        inode, text = os.fstat(opened.fileno()).st_ino, opened.read()
        keep(tmp_path, AFTER)
        opened.seek(0)
        assert opened.read() == text
    assert (tmp_path / "health.json").stat().st_ino != inode


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_half_way_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whichever step it is that fails, until the new file has the name."""
    keep(tmp_path, BEFORE)

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    owner: object = os if step == "fsync" else Path
    monkeypatch.setattr(owner, step, fail)
    keep(tmp_path, AFTER)
    monkeypatch.undo()
    assert kept(tmp_path) == BEFORE


def test_the_disk_has_the_text_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could leave the name with an empty file, or the folder with the old one."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(number: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{number}').readlink().name}")
        assert not steps[-1].endswith(".new") or os.fstat(number).st_size > 0
        fsync(number)

    def replaced(new: Path, old: Path) -> Path:
        steps.append(f"rename {new.name}")
        return replace(new, old)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    keep(tmp_path, AFTER)
    assert steps == ["sync health.new", "rename health.new", f"sync {tmp_path.name}"]
