"""The agent put together as its command does it, but for NVML and, if a test likes, the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from agent.config import AgentConfiguration, load
from agent.facts import NvmlFacts
from agent.host import Host
from agent.kube import NodePort
from agent.kubelet.side import KubeletSide
from agent.loop import turn
from agent.metrics import Metrics
from agent.news import News
from agent.node_watch import NodeVersion, NodeWatch
from agent.publish import Publication
from agent.service import Agent
from tests.kubelet.double import KubeletDouble


def settings(folder: Path, kubelet: KubeletDouble, mode: str) -> AgentConfiguration:
    """Return the configuration of an agent beside this kubelet."""
    flags = {
        "mode": mode,
        "kubelet.devicePlugins": str(kubelet.plugins),
        "kubelet.podResources": str(kubelet.pod_resources / "kubelet.sock"),
        "enforce.state": str(folder / "state"),
        "kubelet.interval": "200ms",
    }
    return load(None, {}, flags)


@contextmanager
def running(
    configuration: AgentConfiguration,
    node: NodePort,
    facts: NvmlFacts,
    follow: Callable[[], Iterator[NodeVersion]] | None = None,
) -> Iterator[Agent]:
    """Run an agent on a machine of these facts; it hears of its node where `follow` tells."""
    news, metrics = News(), Metrics("test")
    side = KubeletSide(configuration, node.read, metrics, news.changed)
    nowhere = Path("/nonexistent")
    publication = Publication(lambda: 0.5, 300.0)
    agent = Agent(lambda: facts, Host(nowhere, nowhere), node, publication, metrics, time.monotonic, side)
    watch = NodeWatch(follow, agent.heard, news.changed, lambda: 0.5) if follow else None
    side.start()
    if watch:
        watch.start()
    thread = Thread(target=turn, args=(agent, news, 30.0))
    thread.start()
    try:
        yield agent
    finally:
        if watch:
            watch.close()
        news.stop()
        thread.join()
        side.close()
