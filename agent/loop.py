"""The agent's loop: one discovery per interval, sooner where news asks for it, and a publication with any other news."""

from __future__ import annotations

import time

from agent.news import News
from agent.service import Agent

_SOONEST_SECONDS = 1.0
"""Between two discoveries: a GPU that is going has much to say."""


def turn(agent: Agent, news: News, interval_seconds: float) -> None:
    """Turn until there is news that the agent shall end; raises what `Agent.turn` raises."""
    while not news.stopped:
        news.discovery_wanted = False
        agent.turn()
        turned = time.monotonic()
        while (
            not news.stopped
            and (left := turned + _pause(news, agent.interval_seconds(interval_seconds)) - time.monotonic()) > 0
        ):
            pause = agent.pause_seconds(left)
            if news.wait(pause) or pause < left:
                agent.publish()


def _pause(news: News, interval_seconds: float) -> float:
    return min(_SOONEST_SECONDS, interval_seconds) if news.discovery_wanted else interval_seconds
