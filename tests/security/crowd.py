"""`python -m tests.security.crowd HOST PORT PATH COUNT PAUSE NICE`: so many connections ask for a page until they are killed.

It is a program of its own, so that what it costs is not taken for what it does to others.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PAUSE_SECONDS = 0.05
"""After a connection that could not be had, or was cut."""


async def ask(host: str, port: int, path: str, pause_seconds: float) -> None:
    """Ask again and again, on one connection as long as it is kept, with a pause after each answer."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(_PAUSE_SECONDS)
            continue
        try:
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0].partition(b":")[2]))
                await asyncio.sleep(pause_seconds)
                if b"connection: close" in head.lower():
                    break
        except (OSError, asyncio.IncompleteReadError):
            await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            writer.close()


async def main(host: str, port: int, path: str, count: int, pause_seconds: float) -> None:
    """Let all of them come."""
    await asyncio.gather(*(ask(host, port, path, pause_seconds) for _ in range(count)))


@asynccontextmanager
async def crowd(
    address: tuple[str, int], path: str, count: int, *, pause_seconds: float = 0.0, nice: int = 0
) -> AsyncIterator[None]:
    """Run the program while the context is open; without a pause it asks as fast as it is answered."""
    arguments = ("-m", "tests.security.crowd", *map(str, (*address, path, count, pause_seconds, nice)))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    os.nice(int(sys.argv[6]))
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5])))
