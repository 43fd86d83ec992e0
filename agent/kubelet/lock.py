"""One agent per node: a second one, of an overlapping rollout, waits until the first has gone."""

from __future__ import annotations

import fcntl
from io import TextIOWrapper
from pathlib import Path

import structlog

log = structlog.get_logger()


class NodeLock:
    """A lock on a file in our folder; the kernel lets go of it with the process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "lock"
        self._stream: TextIOWrapper | None = None

    @property
    def held(self) -> bool:
        """Whether it is ours."""
        return self._stream is not None

    def acquire(self) -> bool:
        """Try to get it, and say whether it is ours."""
        if self._stream is not None:
            return True
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            stream = self._file.open("a", encoding="utf-8")
        except OSError as error:
            log.error("cannot use the state folder", folder=str(self._file.parent), reason=str(error))
            return False
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            return False
        self._stream = stream
        return True

    def release(self) -> None:
        """Let the next one have it."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
