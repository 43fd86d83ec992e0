"""The agent's service, put together from its settings.

Most of the agent's memory and start-up time is what this module imports, so `gputopo-agent --once` does not import it.
"""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version

import structlog

from agent.config import AgentConfiguration, MetricsSettings
from agent.gpus.activity import ActivityPort
from agent.gpus.health.gpu_health import GpuHealth
from agent.gpus.health.health_file import HealthFile
from agent.gpus.health.xid_watch import XidWatch
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.access import NvmlAccess
from agent.gpus.nvml.activity_reader import read_activity
from agent.gpus.nvml.cgroup_limits import read_limits, set_limits
from agent.gpus.nvml.reader import read_nvml, read_processes
from agent.gpus.nvml.time_limit import NvmlCalls
from agent.gpus.nvml.xid_events import follow_xids
from agent.gpus.sharing_rule import SharingRule
from agent.health.announcement import Announcement, announce, announce_links
from agent.health.links import LinkChange
from agent.health.node import HealthChange
from agent.health.policy import HealthPolicy
from agent.kubelet.side import KubeletSide
from agent.leave import leave
from agent.limits.level import LimitsLevel
from agent.limits.level_announcement import announce_level
from agent.limits.of_node import foreign_memory, limiter, shares_gpus
from agent.loop import turn
from agent.metrics import AgentMetrics
from agent.monitoring.dcgm import DcgmExporter, answers_as_dcgm
from agent.monitoring.sampler import Sampler
from agent.news import News
from agent.node.condition import ConditionKeeper
from agent.node.events import NodeEvent, NodeEvents
from agent.node.kube import KubernetesNode
from agent.node.publish import Publication
from agent.node.watch import NodeVersion, NodeWatch
from agent.probes import Probes, announced
from agent.service import Agent

log = structlog.get_logger()

_DISCOVERY_SECONDS = 25.0
"""A discovery takes seconds at most where NVML is held open; where it is not, the driver may take two for each GPU first."""
_FIRST_WORD_SECONDS = 1.0
"""Of the API server about our node, at the start; without an answer the node is looked after all the same."""


def serve(settings: AgentConfiguration, node_name: str, host: Host) -> None:
    """Look after the node until a signal comes.

    Raises:
        ApiError: There are no credentials.
        NvmlUnavailable: The driver was updated, and only a new process loads its library.

    """
    discovery, kubernetes = settings.discovery, settings.kubernetes
    own_version = version("gputopo")
    news, metrics = News(), AgentMetrics(own_version)
    node = KubernetesNode(node_name, kubernetes.kubeconfig, kubernetes.context, kubernetes.request_timeout)
    nvml = NvmlAccess()
    _obey_signals(nvml, news)
    memory = HealthFile(settings.enforce.state)
    events = NodeEvents(node_name, node, counted=metrics.event)

    def post(said: Announcement) -> None:
        events.say(NodeEvent(said.reason, said.note, "Warning" if said.is_warning else "Normal"))

    def tell_level(level: LimitsLevel) -> None:
        metrics.limits_changed(level.limits)
        post(announce_level(level))

    read, set_ = nvml.reading(read_limits), nvml.reading(set_limits)
    limits = partial(limiter, settings, set_, read, time.monotonic, tell_level) if shares_gpus(settings) else None
    kubelet = KubeletSide(settings, node.read, metrics, news.changed, nvml.reading(read_processes), limits)

    def tell(change: HealthChange, index: int | None) -> None:
        if change.before.state is not change.after.state:
            metrics.health_changed(change.after.state)
        post(announce(change, index, time.time()))

    policy = HealthPolicy(hold=discovery.xid_recovery)

    def tell_links(change: LinkChange, index: int | None) -> None:
        metrics.links_changed(len(change.links), are_used=change.are_used)
        post(announce_links(change, index, policy))

    health = GpuHealth(time.time, policy, memory, host.boot(), tell, tell_links, time.monotonic)
    metrics.watch(health.readings)
    sampler = _sampler(settings.metrics, kubelet, metrics, nvml.reading(read_activity))
    foreign = foreign_memory(settings, read, lambda: kubelet.ledger).marked if shares_gpus(settings) else None
    agent = Agent(
        GpuMachine(
            partial(NvmlCalls(_DISCOVERY_SECONDS).call, nvml.reading(read_nvml)),
            host,
            health,
            discovery.ignored_processes,
            _sharing(settings),
            foreign,
        ),
        node,
        Publication(random.random, settings.publish.refresh_interval, own_version),
        metrics,
        time.monotonic,
        kubelet=kubelet,
        condition=ConditionKeeper(node, time.monotonic) if settings.publish.condition else None,
    )

    def heard(version: NodeVersion) -> None:
        agent.heard(version)
        if any([nvml.pause(version.paused), health.overridden(version.gpu_health)]):
            news.discover()

    with ExitStack() as running:
        probes = _probes(settings, agent, news, metrics)
        running.callback(memory.close)
        running.callback(probes.close)
        log.info("started", node=node_name, mode=settings.mode, probes=probes.port)
        watch = NodeWatch(node.follow, heard, news.changed, random.random)
        for service in (events, kubelet, watch):
            running.callback(service.close)
            service.start()
        watch.wait(_FIRST_WORD_SECONDS)  # so that a driver that is to be left alone is not opened first
        readers: list[XidWatch | Sampler] = [*_xid_watch(settings, nvml, health, news), *sampler]
        for reader in readers:
            running.callback(reader.close)
            reader.start()
        turn(agent, news, discovery.interval)
        leave(agent, kubelet)


def _obey_signals(nvml: NvmlAccess, news: News) -> None:
    def end(*_: object) -> None:
        nvml.close()  # before all that takes its time: a driver that is to be unloaded waits for this
        news.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _sharing(settings: AgentConfiguration) -> SharingRule | None:
    """Return which GPUs may be shared, where any may."""
    sharing = settings.sharing
    if settings.mode != "enforce" or sharing.gpus == "none":
        return None
    return SharingRule(sharing.models, None if sharing.reserve_gib == "auto" else sharing.reserve_gib)


def _xid_watch(settings: AgentConfiguration, nvml: NvmlAccess, health: GpuHealth, news: News) -> list[XidWatch]:
    """Return who listens to critical errors, if anybody is to."""
    return [XidWatch(nvml.following(follow_xids), health, news.discover)] if settings.discovery.xids else []


def _sampler(
    settings: MetricsSettings, kubelet: KubeletSide, metrics: AgentMetrics, read: ActivityPort
) -> list[Sampler]:
    """Return who samples the GPUs, if anybody is to, and have the series told."""
    if settings.holders:
        metrics.watch_holders(lambda: kubelet.pods)
    if settings.gpus == "never":
        return []
    dcgm = DcgmExporter(lambda: kubelet.pods, lambda: answers_as_dcgm(settings.dcgm.host, settings.dcgm.port))
    is_due = (lambda: True) if settings.gpus == "always" else (lambda: not dcgm.runs())
    sampler = Sampler(read, is_due, settings.interval, metrics.sampled)
    metrics.watch_activity(sampler.samples)
    return [sampler]


def _probes(settings: AgentConfiguration, agent: Agent, news: News, metrics: AgentMetrics) -> Probes:
    def tell_again() -> None:
        agent.refresh()
        news.changed()

    checks = {
        "/livez": lambda: agent.is_turning(settings.discovery.interval),
        "/readyz": announced(lambda: agent.is_ready, tell_again),
    }
    return Probes(settings.health.host, settings.health.port, checks, metrics.text)
