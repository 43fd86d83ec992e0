"""The journal on a slow disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from agent.kubelet.serving.journal_file import JournalFile
from agent.plugin.hold_back import Served

PATIENCE_SECONDS = 60.0


def served(name: str) -> tuple[Served, ...]:
    return (Served("ml", name, f"uid-{name}", frozenset({"GPU-a"})),)


async def test_of_journals_that_wait_only_the_newest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk is not asked to write what is out of date already."""
    is_writing, may_go_on, writes = Event(), Event(), list[str]()
    write_text = Path.write_text

    def slow(file: Path, text: str, encoding: str) -> int:
        writes.append(text)
        is_writing.set()
        may_go_on.wait(PATIENCE_SECONDS)
        return write_text(file, text, encoding)

    monkeypatch.setattr(Path, "write_text", slow)
    file = JournalFile(tmp_path)
    first = asyncio.create_task(file.keep(served("first"), PATIENCE_SECONDS))
    assert await asyncio.to_thread(is_writing.wait, PATIENCE_SECONDS)
    later = [asyncio.create_task(file.keep(served(name), PATIENCE_SECONDS)) for name in ("second", "third")]
    await asyncio.sleep(0)
    may_go_on.set()
    await asyncio.gather(first, *later)
    file.close()
    assert (len(writes), file.load()) == (2, served("third"))
