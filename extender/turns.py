"""Work in steps on the event loop: between two of them others have their turns."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from topology.effort import Search

Answer = TypeVar("Answer")


async def in_turns(steps: Search[Answer]) -> Answer:
    """Take the steps one after the other, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        await asyncio.sleep(0)
