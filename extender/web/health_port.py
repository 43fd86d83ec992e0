"""The health port on the event loop that it shares with the verbs: rounds of visits while somebody is there, else silence."""

from __future__ import annotations

import asyncio
import socket
from typing import NoReturn

from extender.kit.visits import ROUND_SECONDS, Pages, Visits


class HealthPort:
    """Serves pages on a socket that is bound already; who has not asked within `receive_seconds` is cut."""

    def __init__(self, pages: Pages, opened: socket.socket, receive_seconds: float) -> None:
        self._socket = opened
        self._visits = Visits(opened, pages, receive_seconds)

    async def serve(self) -> NoReturn:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                if not self._visits:
                    await self._knock(loop)
                self._visits.serve_round(loop.time())
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            self._visits.close()
            self._socket.close()

    async def _knock(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until somebody comes."""
        knocked = asyncio.Event()
        loop.add_reader(self._socket, knocked.set)
        try:
            await knocked.wait()
        finally:
            loop.remove_reader(self._socket)
