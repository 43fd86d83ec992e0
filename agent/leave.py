"""How an agent that hands out GPUs ends: it says so first, and serves on for those who were sent here before that was known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import structlog

from agent.node.look import KubeletPort
from agent.service import Agent
from topology.node.status import Mode

log = structlog.get_logger()

KNOWN_SECONDS: Final = 1.0
"""After so long every extender has heard of it, and a Binding that was under way has reached the kubelet."""
PATIENCE_SECONDS: Final = 3.0
"""As long as a bind may take: a pod that has not come by then does not come."""
_POLL_SECONDS = 0.05


def leave(
    agent: Agent,
    kubelet: KubeletPort,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Say that no pod is to be sent here any more, and return when those have come who were.

    Where another plugin serves, nobody has to be told.
    """
    if kubelet.last_look.plugin.mode is not Mode.ENFORCE:
        return
    kubelet.leave()
    kubelet.look()
    agent.publish()
    said = clock()
    while (waited := clock() - said) < (PATIENCE_SECONDS if kubelet.is_expected else KNOWN_SECONDS):
        sleep(_POLL_SECONDS)
    log.info("no pod is on its way any more", waited_seconds=round(waited, 2), expected=kubelet.is_expected)
