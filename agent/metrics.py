"""The agent's own metrics, and those of its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent.gpu_metrics import GpuSeries
from agent.gpus.activity import Activity
from agent.gpus.discovery import NodeDiscovery
from agent.gpus.health.readings import GpuReading
from agent.health.record import State
from agent.monitoring.series import ActivitySeries, HolderSeries
from agent.plugin.pods.listed_pods import ListedPod
from topology.node.sharing import Limits


class AgentMetrics:
    """One registry, so that tests can have their own."""

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        self._gpus = self._gauge("gpus", "GPUs that take pods (`healthy`) or not (`unhealthy`).", "state")
        self._nvlinks_down = self._gauge("nvlinks_down", "NVLinks that are down, or not up for five minutes yet.")
        self._nvlink_changes = self._counter(
            "nvlink_changes", "NVLinks that went out of use (`down`) or are used again (`up`).", "state"
        )
        self._downgraded_pairs = self._gauge(
            "downgraded_pairs",
            "GPU pairs with less bandwidth than their links: no peer access, or fabric not ready.",
            "reason",
        )
        self._discovery_seconds = self._gauge(
            "discovery_duration_seconds", "Duration of the last discovery: one scan of NVML and the host."
        )
        self._sampling_seconds = self._gauge(
            "sampling_duration_seconds", "Duration of the last sample; 0 before the first."
        )
        self._failures = self._counter("discovery_failures", "Discoveries at which NVML did not work.", "code")
        self._writes = self._counter("writes", "Writes to the Node: `ok`, or the API's status.", "result")
        self._allocations = self._counter(
            "allocations", "Requests of containers in mode `enforce`, by what decided them.", "basis"
        )
        self._registrations = self._counter(
            "registrations",
            "Registrations with the kubelet: `ok`, `failed`. One per start of agent or kubelet is normal.",
            "result",
        )
        self._held_back = self._counter(
            "holds", "Container starts that were delayed because of their GPUs; the kubelet retries.", "cause"
        )
        self._health_changes = self._counter("health_changes", "Changes of GPU health, by new state.", "state")
        self._events = self._counter("events", "Events about the node's GPUs: `posted`, or `lost`.", "result")
        self._limits = self._gauge(
            "sharing_limits", "1 for the limit of shares in force; absent if no GPU is shared.", "limits"
        )
        for state in State:
            self._health_changes.labels(state)
        for used in (False, True):
            self.links_changed(0, are_used=used)
        self._identified = Histogram(
            "gputopo_agent_identification_duration_seconds",
            "Time to identify the pod that the kubelet admits, and its claims.",
            registry=self._registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
        )
        self._gauge("build_info", "1, with the version.", "version").labels(version).set(1)

    def watch(self, read: Callable[[], Iterable[GpuReading]]) -> None:
        """Tell of each GPU what `read` gives whenever somebody scrapes."""
        self._registry.register(GpuSeries(read))

    def watch_activity(self, read: Callable[[], Iterable[Activity]]) -> None:
        """Tell of each GPU what it did at the last sample."""
        self._registry.register(ActivitySeries(read))

    def watch_holders(self, pods: Callable[[], Iterable[ListedPod] | None]) -> None:
        """Tell of each GPU who holds it."""
        self._registry.register(HolderSeries(pods))

    def sampled(self, seconds: float) -> None:
        """Note how long it took to read what the GPUs do."""
        self._sampling_seconds.set(seconds)

    def saw(self, discovery: NodeDiscovery, duration_seconds: float) -> None:
        """Count what a discovery gave."""
        self._discovery_seconds.set(duration_seconds)
        healthy = sum(gpu.healthy for gpu in discovery.status.gpus)
        self._gpus.labels("healthy").set(healthy)
        self._gpus.labels("unhealthy").set(len(discovery.status.gpus) - healthy)
        self._nvlinks_down.set(len(discovery.status.link_faults))
        self._downgraded_pairs.clear()
        for link in discovery.topology.links:
            if link.reason:
                self._downgraded_pairs.labels(link.reason).inc()

    def failed(self, code: str) -> None:
        """Count a discovery at which NVML did not work."""
        self._failures.labels(code).inc()

    def wrote(self, result: str) -> None:
        """Count a write to the Node object: `ok`, or the API's status."""
        self._writes.labels(result).inc()

    def allocated(self, basis: str) -> None:
        """Count one answer to the kubelet: `planned`, `adopted`, `unplanned`, `refused`."""
        self._allocations.labels(basis).inc()

    def identified(self, seconds: float) -> None:
        """Count how long it took to find the pod under admission."""
        self._identified.observe(seconds)

    def held_back(self, cause: str) -> None:
        """Count a container that had to wait: `plan`, `process`, `limit`."""
        self._held_back.labels(cause).inc()

    def registered(self, result: str) -> None:
        """Count an attempt to register with the kubelet: `ok`, `failed`."""
        self._registrations.labels(result).inc()

    def health_changed(self, state: State) -> None:
        """Count a GPU whose health is another one now."""
        self._health_changes.labels(state).inc()

    def links_changed(self, count: int, *, are_used: bool) -> None:
        """Count NVLinks that are used again, or no more."""
        self._nvlink_changes.labels("up" if are_used else "down").inc(count)

    def limits_changed(self, limits: Limits) -> None:
        """Note what holds containers to their shares from now on."""
        for limit in Limits:
            self._limits.labels(limit).set(limit is limits)

    def event(self, result: str) -> None:
        """Count an event about the node: `posted`, `lost`."""
        self._events.labels(result).inc()

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"gputopo_agent_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"gputopo_agent_{name}", text, labels, registry=self._registry)
