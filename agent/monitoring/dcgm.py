"""Whether NVIDIA's DCGM exporter tells of this node's GPUs already, as far as an agent without rights to pods can see.

It looks in two places. The kubelet's PodResources lists the node's pods by name, those without devices too. All that
install the exporter name its pods after it. And an exporter that is no pod, or is one on the node's network, answers at
the node's own address. What runs under another name and at another port is not seen.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import structlog

from agent.plugin.pods.listed_pods import ListedPod

log = structlog.get_logger()

ASK_SECONDS: Final = 300.0
"""Between two looks: an exporter comes and goes with a roll-out."""
_NAME: Final = "dcgm-exporter"
"""`nvidia-dcgm-exporter-…` of the GPU operator, `dcgm-exporter-…` of its own chart and of the clouds."""
_MARK: Final = b"DCGM_FI_"
_PATIENCE_SECONDS = 1.0
_MOST_BYTES = 64 << 10


class DcgmExporter:
    """Looks for it.

    Args:
        pods: The node's pods, or `None` as long as the kubelet has not said.
        answers: Whether it answers at the node's address.
        clock: monotonic, in seconds.

    """

    def __init__(
        self,
        pods: Callable[[], Iterable[ListedPod] | None],
        answers: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pods = pods
        self._answers = answers
        self._clock = clock
        self._asked_at: float | None = None
        self._runs = False

    def runs(self) -> bool:
        """Return whether it runs here, by a look that is at most five minutes old."""
        now = self._clock()
        if self._asked_at is None or now - self._asked_at >= ASK_SECONDS:
            pods = self._pods()
            runs = any(_NAME in pod.name for pod in pods or ()) or self._answers()
            # While the kubelet is silent a no is a guess, and the next call looks again.
            self._asked_at = None if pods is None and not runs else now
            if runs is not self._runs:
                self._runs = runs
                log.info("DCGM exporter tells of these GPUs" if runs else "no DCGM exporter here")
        return self._runs


def answers_as_dcgm(host: str, port: int) -> bool:
    """Ask there for metrics, for a second at most and however slowly it speaks; return whether they are DCGM exporter's."""
    end = time.monotonic() + _PATIENCE_SECONDS
    said = b""
    with suppress(OSError), socket.create_connection((host, port), _PATIENCE_SECONDS) as peer:
        peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        while _MARK not in said and len(said) < _MOST_BYTES and (left := end - time.monotonic()) > 0:
            peer.settimeout(left)
            if not (part := peer.recv(_MOST_BYTES)):
                break
            said += part
    return _MARK in said
