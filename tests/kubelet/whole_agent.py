"""The agent put together as its command does it, but for NVML and, if a test likes, the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from typing import TypeVar

from agent.config import AgentConfiguration, load
from agent.gpus.facts import NvmlFacts, NvmlPort
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.xid_watch import XidWatch
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.reader import read_nvml, read_processes
from agent.gpus.nvml.xid_events import follow_xids
from agent.health.policy import HealthPolicy
from agent.kubelet.side import KubeletSide
from agent.loop import turn
from agent.metrics import AgentMetrics
from agent.news import News
from agent.node.kube import NodePort
from agent.node.publish import Publication
from agent.node.watch import NodeVersion, NodeWatch
from agent.service import Agent
from tests.kubelet.double import KubeletDouble

Given = TypeVar("Given")

UNHURRIED = "60s"
"""For an answer to the kubelet: with the default of 0.4 s, a busy machine has the agent decide before it knows who asks."""


def settings(folder: Path, kubelet: KubeletDouble, mode: str, **more: str) -> AgentConfiguration:
    """Return the configuration of an agent beside this kubelet; `discovery_interval` is `discovery.interval`."""
    flags = {
        "mode": mode,
        "kubelet.devicePlugins": str(kubelet.plugins),
        "kubelet.podResources": str(kubelet.pod_resources / "kubelet.sock"),
        "enforce.deadline": UNHURRIED,
        "enforce.state": str(folder / "state"),
        "kubelet.interval": "200ms",
    }
    return load(None, {}, flags | {name.replace("_", ".", 1): value for name, value in more.items()})


@contextmanager
def running(
    configuration: AgentConfiguration,
    node: NodePort,
    facts: NvmlFacts,
    follow: Callable[[], Iterator[NodeVersion]] | None = None,
) -> Iterator[Agent]:
    """Run an agent on a machine of these facts; it hears of its node where `follow` tells."""
    with _running(configuration, node, lambda: facts, follow) as agent:
        yield agent


@contextmanager
def running_on_nvml(configuration: AgentConfiguration, node: NodePort) -> Iterator[GpuHealth]:
    """Run an agent on the machine that NVML shows, and have it listen to critical errors; give what it is told."""
    health = GpuHealth(time.time, HealthPolicy(hold=configuration.discovery.xid_recovery))
    with _running(configuration, node, read_nvml, None, health):
        yield health


@asynccontextmanager
async def in_a_thread(context: AbstractContextManager[Given]) -> AsyncIterator[Given]:
    """Enter and leave `context` in a thread, because an agent that starts or ends waits for what runs in this loop."""
    stack = ExitStack()
    given = await asyncio.to_thread(stack.enter_context, context)
    try:
        yield given
    finally:
        await asyncio.to_thread(stack.close)


@contextmanager
def _running(
    configuration: AgentConfiguration,
    node: NodePort,
    nvml: NvmlPort,
    follow: Callable[[], Iterator[NodeVersion]] | None,
    health: GpuHealth | None = None,
) -> Iterator[Agent]:
    news, metrics = News(), AgentMetrics("test")
    side = KubeletSide(configuration, node.read, metrics, news.changed, read_processes)
    nowhere = Path("/nonexistent")
    publication = Publication(lambda: 0.5, 300.0)
    machine = GpuMachine(nvml, Host(nowhere, nowhere), health)
    agent = Agent(machine, node, publication, metrics, time.monotonic, kubelet=side)
    watch = NodeWatch(follow, agent.heard, news.changed, lambda: 0.5) if follow else None
    errors = XidWatch(follow_xids, health, news.discover) if health else None
    side.start()
    for listener in (watch, errors):
        if listener:
            listener.start()
    thread = Thread(target=turn, args=(agent, news, configuration.discovery.interval))
    thread.start()
    try:
        yield agent
    finally:
        for listener in (watch, errors):
            if listener:
                listener.close()
        news.stop()
        thread.join()
        side.close()
