"""The journal as a file: replaced whole or left as it was; a disk that hangs is not waited for.

It is for the next agent on a machine that runs on. After a power cut it may be empty, and nothing it could tell is true any more.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from agent.plugin.hold_back import Served
from agent.plugin.journal import decode, encode

log = structlog.get_logger()


class JournalFile:
    """One file in a folder that is ours."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "journal.json"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._newest = 0

    def load(self) -> tuple[Served, ...]:
        """Return what was kept last; nothing when there is no file, or none that can be read."""
        try:
            return decode(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            log.warning("the journal cannot be read", file=str(self._file), reason=str(error))
            return ()

    async def keep(self, served: tuple[Served, ...], timeout_seconds: float) -> None:
        """Replace the file, or go on without when that takes longer; of writes that pile up only the newest is made."""
        self._newest += 1
        number = self._newest
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, number, encode(served))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.shield(writing)
        except (TimeoutError, OSError) as error:
            log.warning("the journal could not be written", file=str(self._file), reason=str(error) or "too slow")

    def close(self) -> None:
        """Start no more writes."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _write(self, number: int, text: str) -> None:
        if number != self._newest:
            return
        new = self._file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self._file)
