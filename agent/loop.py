"""The agent's loop: one look at the node per interval, and a publication whenever there is news of the kubelet in between."""

from __future__ import annotations

import time

from agent.news import News
from agent.service import Agent


def turn(agent: Agent, news: News, interval_seconds: float) -> None:
    """Turn until there is news that the agent shall end; raises what `Agent.turn` raises."""
    while not news.stopped:
        agent.turn()
        turn_at = time.monotonic() + interval_seconds
        while not news.stopped and (left := turn_at - time.monotonic()) > 0:
            pause = agent.pause_seconds(left)
            if news.wait(pause) or pause < left:
                agent.publish()
