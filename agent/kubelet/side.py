"""The agent's side towards its kubelet: an event loop on a thread of its own, so that neither NVML nor the API server stops it.

The other thread offers what it finds of the GPUs and takes what is seen of the containers, through this class only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError as LoopEnded
from concurrent.futures import TimeoutError as LookTimeout
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Any, TypeAlias, TypeVar

import structlog

from agent.config import AgentConfiguration
from agent.gpus.discovery import NodeDiscovery
from agent.gpus.facts import ProcessPort
from agent.kubelet.enforcement import PluginMetrics, Ports
from agent.kubelet.kubelet_watch import LOOK_SECONDS, KubeletWatch
from agent.kubelet.serving.device_nodes import mig_numbers, own_nodes
from agent.kubelet.serving.devices import PluginDevice
from agent.limits.limiter import Limiter
from agent.node.ledger import NodeLedger
from agent.node.look import Look
from agent.node.watch import NodeVersion
from agent.plugin.choice.choose import ScorerPort
from agent.plugin.choice.lazy_scorer import LazyScorer
from agent.plugin.devices.device_names import uuids_by_name
from agent.plugin.devices.offers import Sliced, gpu_of
from agent.plugin.pods.listed_pods import ListedPod, plans_of
from topology.annotations.records import Ledger
from topology.node.model import NodeTopology
from topology.node.nics import nics_by_gpu

log = structlog.get_logger()

_STEP_PAUSE_SECONDS = 0.01
"""Between steps of some milliseconds, of which there are hundreds to thousands: nobody waits for values."""
_PAUSE_SECONDS = 1.0
"""Before the loop starts again after a failure that nobody has thought of."""

T = TypeVar("T")

_Offered: TypeAlias = tuple[tuple[PluginDevice, ...], ScorerPort | None, Sliced, tuple[str, ...], Mapping[str, str]]


class KubeletSide:
    """Runs from `start` to `close`; `changed` is called, on its thread, when what is seen has changed."""

    def __init__(
        self,
        settings: AgentConfiguration,
        read_node: Callable[[], Mapping[str, str]],
        metrics: PluginMetrics,
        changed: Callable[[], None],
        processes: ProcessPort,
        limiter: Callable[[], Limiter] | None = None,
    ) -> None:
        self._ledger = NodeLedger(read_node)
        ports = Ports(self._ledger, processes, metrics, time.monotonic, limiter)
        self._make = partial(KubeletWatch, settings, ports, changed)
        self._thread = Thread(target=self._run, name="kubelet", daemon=True)
        self._started, self._closing = Event(), Event()
        self._loop: asyncio.AbstractEventLoop
        self._watch: KubeletWatch
        self._task: asyncio.Task[None]
        self._offered: _Offered | None = None
        self._enforces = settings.mode == "enforce"
        self._ending = False
        self._topology: NodeTopology | None = None
        self._scorer: LazyScorer | None = None

    def start(self) -> None:
        """Start looking."""
        self._thread.start()
        self._started.wait()

    def close(self) -> None:
        """Let the kubelet go and end."""
        self._closing.set()
        with suppress(RuntimeError):  # between two lives of the loop there is nothing to cancel
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def offer(self, discovery: NodeDiscovery) -> None:
        """Take these GPUs for the node's."""
        if self._enforces and discovery.topology != self._topology:
            self._scorer, self._topology = LazyScorer(discovery.topology, self._begin_values), discovery.topology
        if self._scorer:
            self._scorer.doubtful = discovery.status.doubtful
        sliced = _sliced(discovery.topology)
        numbers = mig_numbers() if discovery.topology.slices else {}
        nodes = own_nodes(discovery.topology, discovery.minors, numbers)
        devices = tuple(replace(device, nodes=nodes.get(device.uuid, ())) for device in _devices(discovery))
        uuids = uuids_by_name(discovery.topology, discovery.minors)
        # What the next loop begins with.
        self._offered = offered = devices, self._scorer, sliced, discovery.unshared, uuids
        self._tell(lambda watch: watch.take(*offered))

    def heard(self, version: NodeVersion) -> None:
        """Take in what the Node says now."""
        if self._enforces and version.ledger is not None:
            self._ledger.heard(version.ledger)

    @property
    def pods(self) -> tuple[ListedPod, ...] | None:
        """The node's pods as the kubelet listed them last; `None` while it does not say; from any thread."""
        return self._watch.pods if self._started.is_set() else None

    @property
    def ledger(self) -> Ledger | None:
        """The node's claims as they were heard of last; only in mode `enforce`."""
        return self._ledger.known

    @property
    def last_look(self) -> Look:
        """What was seen last."""
        return self._watch.last_look

    def look(self) -> Look:
        """Look now, and wait for it."""
        return self._ask(lambda watch: watch.look()) or replace(self._watch.last_look, held=None)

    def about_to_publish(self, look: Look) -> bool:
        """Prepare for what the node is about to be told of a look; returns whether it may be told."""
        return self._ask(lambda watch: watch.about_to_publish(look)) or False

    def published(self, look: Look) -> None:
        """Take in that the node says now what was seen at that look."""
        self._tell(lambda watch: watch.published(look))

    def leave(self) -> None:
        """Have it said from the next look on that no pod is to be sent here any more; serve on until `close`."""
        self._ending = True
        self._watch.ending = True

    @property
    def is_expected(self) -> bool:
        """Whether the ledger promises GPUs to a pod that the kubelet has not admitted yet; only in mode `enforce`."""
        held = {pod.key: frozenset(map(gpu_of, pod.gpus)) for pod in self._watch.pods or ()}
        return any(not plan.gpus <= held.get(plan.key, frozenset()) for plan in plans_of(self._ledger.known).values())

    def _tell(self, news: Callable[[KubeletWatch], None]) -> None:
        """Have the loop's watch told, if there is a loop just now."""
        with suppress(RuntimeError):  # raised of a closed loop alone: what is told is told on the other thread
            self._loop.call_soon_threadsafe(lambda: news(self._watch))

    def _ask(self, question: Callable[[KubeletWatch], Coroutine[Any, Any, T]]) -> T | None:
        """Return what the loop's watch answers; `None` where that takes too long, or there is no loop, or none any more."""

        async def asking() -> T | None:
            # a loop that ends begins what comes meanwhile, and finishes none of it
            return None if self._task.done() else await question(self._watch)

        coroutine = asking()
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # raised of a closed loop alone: what is asked is asked on the other thread
            coroutine.close()
            return None
        try:
            return answer.result(2 * LOOK_SECONDS)
        except (LookTimeout, LoopEnded):
            answer.cancel()
            return None

    def _begin_values(self, scorer: LazyScorer) -> None:
        Thread(target=self._appraise, args=(scorer,), name="values", daemon=True).start()

    def _appraise(self, scorer: LazyScorer) -> None:
        """Compute values for as long as this scorer is the one in use, and leave most of the time to others."""
        for _ in scorer.appraise():
            if self._closing.wait(_STEP_PAUSE_SECONDS) or self._scorer is not scorer:
                return
        log.info("free GPUs have computed values")

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                asyncio.run(self._live())
            except asyncio.CancelledError:
                return
            except Exception:
                log.exception("the kubelet side failed, and starts again")
                self._closing.wait(_PAUSE_SECONDS)

    async def _live(self) -> None:
        self._watch, self._loop = self._make(), asyncio.get_running_loop()
        self._watch.ending = self._ending
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._started.set()
        if self._closing.is_set():  # it came before there was a task to cancel
            return
        if self._offered:
            self._watch.take(*self._offered)
        await self._watch.run()


def _devices(discovery: NodeDiscovery) -> Iterator[PluginDevice]:
    """Yield the whole GPUs and the slices; a slice is as healthy as its GPU."""
    topology, status = discovery.topology, discovery.status
    unfit, share_gib = status.unhealthy, {gpu.uuid: gpu.share_gib or 0 for gpu in status.gpus}
    for gpu, nics in zip(topology.gpus, nics_by_gpu(topology), strict=True):
        if not gpu.mig_enabled:
            gib = share_gib.get(gpu.uuid, 0)
            yield PluginDevice(gpu.uuid, gpu.uuid not in unfit, numa_node=gpu.numa_node, nics=nics, share_gib=gib)
    for mig_slice in topology.slices:
        healthy = unfit.isdisjoint((mig_slice.uuid, topology.gpus[topology.positions[mig_slice.gpu]].uuid))
        yield PluginDevice(mig_slice.uuid, healthy, mig_slice.asked_as)


def _sliced(topology: NodeTopology) -> Sliced:
    return {
        gpu.uuid: frozenset(mig_slice.uuid for mig_slice in topology.slices if mig_slice.gpu == gpu.index)
        for gpu in topology.gpus
        if gpu.mig_enabled
    }
