"""The health file survives a kill and a power cut at any point: it is always one that was written whole."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event, Semaphore, Thread

import pytest
from structlog.testing import capture_logs

from agent.gpus.health import health_file
from agent.gpus.health.health_file import HealthFile
from agent.health.memory import HealthMemory
from agent.health.record import GpuRecord

PATIENCE_SECONDS = 60.0
"""More than any step of a test takes."""
BEFORE, AFTER = HealthMemory(boot="before"), HealthMemory(boot="after")


def keep(folder: Path, memory: HealthMemory) -> None:
    """Write a memory, and wait until the disk has it."""
    file = HealthFile(folder)
    file.keep(memory)
    file.close()


def kept(folder: Path) -> HealthMemory:
    """Return what the next agent reads."""
    file = HealthFile(folder)
    try:
        return file.load()
    finally:
        file.close()


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    """The newest; nothing where nothing was kept."""
    assert kept(tmp_path) == HealthMemory()
    for memory in (BEFORE, AFTER):
        keep(tmp_path, memory)
        assert kept(tmp_path) == memory


def test_times_are_bounded_and_counters_are_not(tmp_path: Path) -> None:
    """A GPU spends a petajoule in millijoules; a time beyond the calendar would close the node's status."""
    spent = HealthMemory(gpus={"GPU-a": GpuRecord(energy_mark=10**18, uncorrected=2**40)})
    keep(tmp_path, spent)
    assert kept(tmp_path) == spent
    for seconds in (1e11, 1e300, -1e300):
        keep(tmp_path, HealthMemory(gpus={"GPU-a": GpuRecord(suspect_until=seconds)}))
        assert kept(tmp_path) == HealthMemory()


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


def test_a_disk_that_keeps_nothing_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its path and the reason, and not with each write."""
    failures = Semaphore(0)

    def fail(_: int) -> None:
        failures.release()
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    file = HealthFile(tmp_path)
    with capture_logs() as logs:
        for memory in (BEFORE, AFTER, BEFORE):
            file.keep(memory)
            assert failures.acquire(timeout=PATIENCE_SECONDS)
        file.close()
    assert [(entry["event"], entry["file"], entry["reason"]) for entry in logs] == [
        ("the GPUs' health cannot be kept", str(tmp_path / "health.json"), "no space left on device")
    ]


def test_a_file_that_cannot_be_read_counts_as_none_and_is_reported(tmp_path: Path) -> None:
    """With its path, and what is wrong with it."""
    (tmp_path / "health.json").write_text("{", encoding="utf-8")
    with capture_logs() as logs:
        assert kept(tmp_path) == HealthMemory()
    (entry,) = logs
    assert entry["file"] == str(tmp_path / "health.json")
    assert entry["reason"]


def test_of_memories_that_wait_only_the_newest_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk is not asked to write what is out of date already."""
    is_writing, may_go_on, writes = Event(), Event(), list[str]()
    fsync, replace = os.fsync, Path.replace

    def slow(number: int) -> None:
        is_writing.set()
        may_go_on.wait(PATIENCE_SECONDS)
        fsync(number)

    def replaced(new: Path, old: Path) -> Path:
        writes.append(new.read_text(encoding="utf-8"))
        return replace(new, old)

    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(Path, "replace", replaced)
    file = HealthFile(tmp_path)
    file.keep(BEFORE)
    assert is_writing.wait(PATIENCE_SECONDS)
    for boot in ("second", "third"):
        file.keep(HealthMemory(boot=boot))
    file.keep(AFTER)
    may_go_on.set()
    file.close()
    assert ["before" in writes[0], "after" in writes[-1], len(writes)] == [True, True, 2]


@pytest.mark.parametrize(("does_disk_hang", "patience_seconds"), [(False, 10 * PATIENCE_SECONDS), (True, 0.01)])
def test_the_end_waits_for_the_disk_unless_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience_seconds: float, *, does_disk_hang: bool
) -> None:
    """It returns as soon as the last memory is written, and writes no more."""
    may_go_on, fsync = Event(), os.fsync

    def slow(number: int) -> None:
        may_go_on.wait()
        fsync(number)

    if does_disk_hang:
        monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(health_file, "_PATIENCE_SECONDS", patience_seconds)
    file = HealthFile(tmp_path)
    file.keep(AFTER)
    closing = Thread(target=file.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_SECONDS)
    is_closed = not closing.is_alive()
    may_go_on.set()
    assert is_closed
    with pytest.raises(RuntimeError):
        file.keep(BEFORE)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    """An agent writes for years."""
    keep(tmp_path, AFTER)
    opened = {entry.resolve() for entry in Path("/proc/self/fd").iterdir()}
    assert opened.isdisjoint({tmp_path.resolve(), *tmp_path.resolve().iterdir()})
