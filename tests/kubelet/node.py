"""One node of a test: the kubelet double, the agent's side towards it, and the Node object with its ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event

from agent.config import load
from agent.gpus.facts import Answer, GpuProcess, Known
from agent.kubelet.enforcement import Ports
from agent.kubelet.kubelet_watch import KubeletWatch
from agent.kubelet.serving.devices import PluginDevice
from agent.limits.limiter import Limiter
from agent.metrics import AgentMetrics
from agent.node.ledger import NodeLedger
from agent.node.look import Look
from agent.plugin.choice.best import Scorer
from tests.extender.polling import eventually
from tests.kubelet.double import KubeletDouble
from tests.kubelet.pods import Phase, Pod
from tests.kubelet.whole_agent import UNHURRIED
from topology.annotations import keys
from topology.annotations.records import Claim, Ledger, encode_ledger
from topology.formats.catalog import machine
from topology.node.model import NodeTopology
from topology.node.nics import nics_by_gpu


class AgentOnNode:
    """Use as an async context: everything is up and ready inside, and gone after.

    The agent takes its time for an answer, unless `settings` say otherwise.
    """

    def __init__(
        self, folder: Path, model: str = "dgx-1v", seed: int = 0, settings: Mapping[str, str] | None = None
    ) -> None:
        self.topology = machine(model)
        self.gpus = [gpu.uuid for gpu in self.topology.gpus]
        self.kubelet = KubeletDouble(folder, seed)
        self.claims: dict[str, tuple[Claim, ...]] = {}
        """Pod UID → its claims."""
        self.api_answers = Event()
        self.api_answers.set()
        self.computing: dict[str, tuple[GpuProcess, ...]] = {}
        """UUID → who computes on that GPU, as NVML says."""
        self.nvml_answers = Event()
        self.nvml_answers.set()
        self.ledger = NodeLedger(self._read)
        self.metrics = AgentMetrics("test")
        flags = {
            "mode": "enforce",
            "kubelet.devicePlugins": str(self.kubelet.plugins),
            "kubelet.podResources": str(self.kubelet.pod_resources / "kubelet.sock"),
            "kubelet.configFile": str(folder / "kubelet.yaml"),
            "kubelet.interval": "50ms",
            "enforce.deadline": UNHURRIED,
            "enforce.state": str(folder / "state"),
            "enforce.cdiFolder": str(folder / "cdi"),
        }
        self.settings = load(None, {}, flags | dict(settings or {}))
        self.limiter: Callable[[], Limiter] | None = None
        """Makes what holds containers to their shares."""
        self.share_gib = 0
        """How much of each GPU may be shared."""
        self.says = True
        """Whether the Node is told of each look at once."""
        self.changes = 0
        self._agent: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None]
        self.watch: KubeletWatch

    async def __aenter__(self) -> AgentOnNode:
        try:
            await self.kubelet.start()
            await self.start_agent()
            await self.ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.api_answers.set()
        self.nvml_answers.set()
        self.kubelet.hang_lists = False
        await self.stop_agent()
        await self.kubelet.kill()

    async def start_agent(self) -> None:
        """Start the agent's side towards the kubelet."""
        ports = Ports(self.ledger, self._processes, self.metrics, time.monotonic, self.limiter)
        self.watch = KubeletWatch(self.settings, ports, self._changed)
        self.offer()
        self._agent = asyncio.create_task(self.watch.run())

    async def stop_agent(self) -> None:
        """End it as a crash would: nothing is said to anybody."""
        if self._agent:
            self._agent.cancel()
            with suppress(asyncio.CancelledError):
                await self._agent
            self._agent = None

    def offer(self, *sick: int) -> None:
        """Have the agent find the node's GPUs, all healthy but these."""
        found = enumerate(zip(self.topology.gpus, nics_by_gpu(self.topology), strict=True))
        devices = (
            PluginDevice(gpu.uuid, index not in sick, numa_node=gpu.numa_node, nics=nics, share_gib=self.share_gib)
            for index, (gpu, nics) in found
        )
        self.watch.take(devices, Scorer(self.topology))

    def renumber(self, seed: int) -> None:
        """Have the GPUs come back under other indexes."""
        order = Random(seed).sample(range(len(self.gpus)), len(self.gpus))
        gpus = tuple(replace(self.topology.gpus[old], index=new) for new, old in enumerate(order))
        devices = [PluginDevice(gpu.uuid, healthy=True) for gpu in gpus]
        self.watch.take(devices, Scorer(NodeTopology(gpus)))

    async def ready(self) -> None:
        """Wait until the agent says that pods may be bound."""

        async def says_so() -> bool:
            return (await self.watch.look()).plugin.ready

        await eventually(says_so)
        if self.says:
            await self.says_what_is()

    def promise(self, pod: Pod, containers: Mapping[str, Sequence[int]], *, exact: bool = False) -> None:
        """Have the extender claim GPUs, by index."""
        owners = {gpu: name for name, gpus in containers.items() for gpu in gpus}
        self.claims[pod.uid] = tuple(
            Claim(self.gpus[gpu], pod.uid, pod.namespace, pod.name, name, str(1000 + pod.created), exact)
            for gpu, name in owners.items()
        )

    def promise_share(
        self, pod: Pod, containers: Mapping[str, tuple[int, int]], *, exact: bool = False, sharing_class: str = ""
    ) -> None:
        """Have the extender claim shares: container → index of its GPU, and GiB."""
        self.claims[pod.uid] = tuple(
            Claim(
                self.gpus[gpu],
                pod.uid,
                pod.namespace,
                pod.name,
                name,
                str(1000 + pod.created),
                exact,
                gib,
                sharing_class,
            )
            for name, (gpu, gib) in containers.items()
        )

    async def share(self, pod: Pod, *gpus: int, exact: bool = True) -> Pod:
        """Promise each container `c0`, `c1` … what it asks for of the GPU of this index, run the pod and wait for it."""
        asked = {each.name: (gpu, each.gib) for each, gpu in zip(pod.containers, gpus, strict=True)}
        self.promise_share(pod, asked, exact=exact)
        await self.kubelet.run(pod)
        await self.kubelet.started(pod)
        return pod

    def named(self, *indexes: int) -> set[str]:
        """Return UUIDs."""
        return {self.gpus[index] for index in indexes}

    async def place(self, pod: Pod, *containers: Sequence[int], exact: bool = False) -> Pod:
        """Promise GPUs to the containers `c0`, `c1` …, run the pod and wait for it to start or fail."""
        self.promise(pod, {f"c{place}": gpus for place, gpus in enumerate(containers)}, exact=exact)
        await self.kubelet.run(pod)
        await self.kubelet.started(pod)
        return pod

    def delete(self, pod: Pod) -> None:
        """Have a pod gone, and its claims released."""
        self.kubelet.delete(pod)
        self.claims.pop(pod.uid, None)

    def got(self, pod: Pod) -> list[set[str]]:
        """Return what each container was told, in order; a pod that failed says why."""
        assert pod.phase is Phase.RUNNING, pod.reason
        return [pod.env(container.name) for container in pod.containers]

    def tell(self) -> None:
        """Have the agent hear of its node as it is now."""
        self.ledger.heard(self._written())

    def _read(self) -> Mapping[str, str]:
        self.api_answers.wait()
        return {keys.LEDGER: self._written()}

    def _written(self) -> str:
        return encode_ledger(Ledger(1, tuple(claim for by in self.claims.values() for claim in by)))

    def _processes(self, gpus: Collection[str]) -> Mapping[str, Answer[tuple[GpuProcess, ...]]]:
        self.nvml_answers.wait()
        return {gpu: Known(self.computing.get(gpu, ())) for gpu in gpus}

    def _changed(self) -> None:
        self.changes += 1
        if self.says:
            self._writing = asyncio.create_task(self._write(self.watch.last_look))

    async def says_what_is(self) -> None:
        """Have the Node told of a look of now."""
        await self._write(await self.watch.look())

    async def _write(self, look: Look) -> None:
        if await self.watch.about_to_publish(look):
            self.watch.published(look)


def write_cdi(folder: Path, gpus: Sequence[str]) -> None:
    """Write a CDI spec that names these GPUs, as NVIDIA's toolkit does."""
    folder.mkdir(exist_ok=True)
    devices = "\n".join(f"- name: {gpu}" for gpu in gpus)
    (folder / "nvidia.yaml").write_text(f"kind: nvidia.com/gpu\ndevices:\n{devices}\n")
