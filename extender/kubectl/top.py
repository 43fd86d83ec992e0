"""What GPUs do now, as the metrics of their agents tell it, and who holds them.

The API server fetches an agent's metrics for whoever may `get` `pods/proxy`; a network policy may keep it from the agent's port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from extender.cluster.caches.agents import LABELS
from extender.inspect.inspection import Answer, GpuState, NodeInfo
from extender.inspect.samples import series_of
from extender.kubectl.cleanup import AT_ONCE
from extender.kubectl.snapshot import AgentReadings
from extender.kubernetes.documents import message_of
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request

IDLE_RATIO: Final = 0.05
"""Below it, a GPU that somebody holds does next to nothing."""
MAX_GPUS: Final = 1024
"""Of a node."""
_SERIES: Final = (
    "utilization_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "temperature_celsius",
)
_AGENTS: Final = quote(",".join(f"{label}={value}" for label, value in LABELS.items()), safe="")


class GpuUse(Answer):
    """One GPU; what its agent does not tell is `None`."""

    node: str
    index: int
    uuid: str
    state: GpuState
    pod: str | None = None
    pods: tuple[str, ...] = ()
    """Those that share it, where they are several."""
    utilization_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether somebody holds it and does not use it."""
        is_held = self.pod is not None or bool(self.pods)
        return is_held and self.utilization_ratio is not None and self.utilization_ratio < IDLE_RATIO


class Top(Answer):
    """All GPUs that were asked about."""

    gpus: tuple[GpuUse, ...]
    unheard: dict[str, str]
    """Node → why nothing is known from its agent."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Agent(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Agents(msgspec.Struct):
    items: list[_Agent] = []


def top(nodes: Iterable[NodeInfo], heard: AgentReadings, *, idle: bool = False) -> Top:
    """Join what agents tell with who holds what; with `idle` only GPUs that somebody holds and does not use."""
    infos = [*nodes]
    gpus = (gpu for node in infos for gpu in _of(node, heard.told.get(node.name, {})))
    unheard = {node.name: heard.failed.get(node.name, "no agent runs there") for node in infos}
    return Top(
        gpus=tuple(gpu for gpu in gpus if gpu.is_idle or not idle),
        unheard={name: why for name, why in unheard.items() if name not in heard.told},
    )


def _of(node: NodeInfo, readings: Mapping[str, Mapping[str, float]]) -> Iterator[GpuUse]:
    sharing = {gpu.uuid: tuple(dict.fromkeys(share.pod for share in gpu.shares)) for gpu in node.shared}
    for gpu in node.gpus:
        series = readings.get(gpu.uuid, {})
        yield GpuUse(
            node=node.name,
            index=gpu.index,
            uuid=gpu.uuid,
            state=gpu.state,
            pod=gpu.pod,
            pods=() if gpu.pod else sharing.get(gpu.uuid, ()),
            **{name: series.get(name) for name in _SERIES},
        )


async def ask_agents(config: Kubeconfig, node: str = "") -> AgentReadings:
    """Ask the agents of all nodes, or of one, a few at once; raises `Unavailable` where agents cannot be listed."""
    places = asyncio.Semaphore(AT_ONCE)
    answers, failed = dict[str, dict[str, dict[str, float]]](), dict[str, str]()

    async def ask(agent: _Agent) -> None:
        where = f"/api/v1/namespaces/{quote(agent.metadata.namespace)}/pods/{quote(agent.metadata.name)}/proxy/metrics"
        async with places:
            try:
                status, body = await api.send(Request("GET", where, accept="text/plain"))
            except Unavailable as error:
                failed[agent.spec.node_name] = str(error)
                return
        if status == 200:
            answers[agent.spec.node_name] = series_of(body, MAX_GPUS)
        else:
            failed[agent.spec.node_name] = f"{status}: {message_of(body)}"

    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        selector = f"&fieldSelector={quote(f'spec.nodeName={node}', safe='')}" if node else ""
        status, body = await api.send(Request("GET", f"/api/v1/pods?labelSelector={_AGENTS}{selector}"))
        if status != 200:
            raise Unavailable(f"the agents cannot be listed: {message_of(body)}")
        try:
            agents = msgspec.json.decode(body, type=_Agents).items
        except (ValueError, RecursionError) as error:
            raise Unavailable(f"the list of agents cannot be read: {error}") from error
        await asyncio.gather(*(ask(agent) for agent in agents if agent.spec.node_name))
    return AgentReadings(answers, failed)
