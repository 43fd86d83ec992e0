"""The health machine's memory as a file: replaced whole or left as it was; a disk that hangs is not waited for."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import structlog

from agent.health.memory import HealthMemory, UnreadableMemory, decode_memory, encode_memory

log = structlog.get_logger()

_PATIENCE_SECONDS = 1.0


class HealthFile:
    """One file in a folder that is ours; where there is no such folder, nothing is kept, and that is said once."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "health.json"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="health")
        self._newest = 0
        self._complained = False
        self._written = Event()

    def load(self) -> HealthMemory:
        """Return what was kept last; nothing when there is no file, or none that can be read."""
        try:
            return decode_memory(self._file.read_bytes())
        except FileNotFoundError:
            return HealthMemory()
        except (OSError, UnreadableMemory) as error:
            log.warning("what was kept of the GPUs' health cannot be read", file=str(self._file), reason=str(error))
            return HealthMemory()

    def keep(self, memory: HealthMemory) -> None:
        """Replace the file, soon; of writes that pile up only the newest is made."""
        self._newest += 1
        self._thread.submit(self._write, self._newest, encode_memory(memory))

    def close(self) -> None:
        """Start no more writes, and wait for the last one, if the disk does not hang."""
        self._thread.submit(self._written.set)
        self._written.wait(_PATIENCE_SECONDS)
        self._thread.shutdown(wait=False)

    def _write(self, number: int, text: bytes) -> None:
        if number != self._newest:
            return
        new = self._file.with_suffix(".new")
        try:
            with new.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())  # or a power cut could leave the new name with nothing in it
            new.replace(self._file)
            _sync(self._file.parent)
        except OSError as error:
            if not self._complained:
                log.warning("the GPUs' health cannot be kept", file=str(self._file), reason=str(error))
            self._complained = True


def _sync(folder: Path) -> None:
    """Have the disk know which names the folder has now."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
