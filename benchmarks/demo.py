"""`gputopo-bench demo`: the main job on one machine, without a cluster.

An API double holds a simulated fleet, the real extender runs beside it, and a scheduling loop calls it over HTTP as
kube-scheduler would. The same pods are placed by stock rules on a copy of the fleet.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.extender_process import WITHOUT_VALUES, running_extender
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop, Unschedulable
from benchmarks.simulated.stock import StockCluster, StockPlacement
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import PlacementRecord, decode_ledger
from topology.bandwidth.predict import Bandwidth
from topology.node.links import Affinity
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import Communication, GpuRequest, parse_pod

_PLAIN_WIDTH = 132

# A cluster after some weeks: small pods have nibbled at several machines.
FLEET = (
    SimulatedNode("a100-bridged", "a100-pcie-8-pairs", used=(1, 4)),
    SimulatedNode("h100-a", "hgx-h100", used=(0, 1, 2)),
    SimulatedNode("h100-b", "hgx-h100", used=(0, 1, 2, 3, 4, 5)),
    SimulatedNode("l40s-a", "l40s-8"),
    SimulatedNode("l40s-b", "l40s-8", used=(5,)),
    SimulatedNode("v100-a", "dgx-1v", used=(1, 6)),
    SimulatedNode("v100-b", "dgx-1v", used=(0, 2, 3)),
    SimulatedNode("v100-c", "dgx-1v", used=(4, 6, 7)),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod of the story."""

    name: str
    gpus: int
    asks: tuple[tuple[str, str], ...] = ()

    @property
    def annotations(self) -> dict[str, str]:
        """As a user writes them."""
        return {f"gputopo.dev/{key}": value for key, value in self.asks}


ARRIVALS = (
    Arrival("train-a", 4),
    Arrival("notebook-a", 1),
    Arrival("serve", 2, (("min-bandwidth", "200"),)),
    Arrival("tune-a", 2),
    Arrival("train-b", 4, (("required-affinity", "nvlink"),)),
    Arrival("sweep", 4, (("communication", "none"),)),
    Arrival("pair", 2, (("gpu-model", "*A100*"), ("required-affinity", "nvlink"))),
    Arrival("notebook-b", 1),
    Arrival("train-c", 4, (("gpu-model", "*V100*"),)),
    Arrival("pretrain", 8, (("required-affinity", "nvlink"),)),
)


@dataclass(frozen=True, slots=True)
class DemoRow:
    """What became of one pod, with us and without."""

    arrival: Arrival
    ours: BoundPod | Unschedulable
    why: str
    stock: StockPlacement | None


def run(*, serve: bool) -> None:
    """Play the story and print it; with `serve` stay until Ctrl-C for a look at the inspect page."""
    console = Console()
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    with tempfile.TemporaryDirectory(prefix="gputopo-demo-") as folder:
        end_in_order_on_signals()
        try:
            asyncio.run(_play(console, Path(folder), serve=serve))
        except KeyboardInterrupt:
            console.print("stopped")


async def _play(console: Console, folder: Path, *, serve: bool) -> None:
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, server.url)
        await join(api, FLEET)
        async with running_extender(kubeconfig, folder, WITHOUT_VALUES) as extender:
            rows = await _schedule_all(api, extender.url)
            _report(console, rows)
            if serve:
                page = f"{extender.url}/v1/inspect/"
                console.print(f"\nLook at the cluster: [bold]{page}[/]   (Ctrl-C ends)", highlight=False)
                await asyncio.Event().wait()


async def _schedule_all(api: ApiClient, url: str) -> list[DemoRow]:
    stock = StockCluster(FLEET)
    async with aiohttp.ClientSession() as session:
        scheduler = SchedulerLoop(api, session, url)
        rows = []
        for arrival in ARRIVALS:
            pod = await _create(api, arrival)
            request = parse_pod(pod).request
            nodes = (await api.call("GET", "/api/v1/nodes")).ok()["items"]
            ours = await scheduler.schedule(pod)
            rows.append(DemoRow(arrival, ours, _why(nodes, request, ours), stock.place(request)))
        return rows


async def _create(api: ApiClient, arrival: Arrival) -> Json:
    pod = gpu_pod(arrival.name, arrival.gpus, arrival.annotations, schedulerName="gputopo")
    return (await api.call("POST", "/api/v1/namespaces/default/pods", pod)).ok()


def _why(nodes: Sequence[Json], request: GpuRequest, ours: BoundPod | Unschedulable) -> str:
    """Say what the choice was compared with, by the same decision on the nodes as they were before."""
    if isinstance(ours, Unschedulable):
        return "see below"
    others = {name: found for name, found in _plans(nodes, request) if name in ours.candidates and name != ours.node}
    if not others:
        return "the only node that will do"
    if ours.record.bandwidth is None or request.communication is Communication.NONE:
        return f"of {len(others) + 1} nodes this costs others least"
    name = max(others, key=lambda other: (_point(others[other]), other))
    fastest, here = _point(others[name]), ours.record.bandwidth.point
    if here > fastest:
        return f"fastest of {len(others) + 1}; next is {name}: {fastest:.0f}"
    as_fast = sum(_point(other) == here for other in others.values())
    return (
        f"{name} has {fastest:.0f}, but for larger pods" if fastest > here else f"as fast as {as_fast} more, costs less"
    )


def _point(found: Placement) -> float:
    return found.bandwidth.point if found.bandwidth else 0.0


def _plans(nodes: Sequence[Json], request: GpuRequest) -> Iterator[tuple[str, Placement]]:
    for node in nodes:
        annotations = node["metadata"]["annotations"]
        topology = decode_topology(annotations[keys.TOPOLOGY])
        claims = decode_ledger(annotations[keys.LEDGER]).claims if keys.LEDGER in annotations else ()
        free = (1 << len(topology)) - 1 & ~sum(1 << topology.by_uuid[claim.gpu] for claim in claims)
        found = decide(Situation(TopologyClass(topology), free), request)
        if isinstance(found, Placement):
            yield node["metadata"]["name"], found


def _report(console: Console, rows: Sequence[DemoRow]) -> None:
    table = Table(title="Where the pods went, and the all-reduce bandwidth (GB/s) predicted there", box=SIMPLE_HEAD)
    for heading in ("pod", "asks for", "gputopo", "GB/s", "why", "stock scheduling", "GB/s"):
        table.add_column(heading, justify="right" if heading == "GB/s" else "left", overflow="fold")
    for row in rows:
        table.add_row(row.arrival.name, _asks(row.arrival), *_our_cells(row), row.why, *_stock_cells(row))
    console.print(table)
    for row in rows:
        if isinstance(row.ours, Unschedulable):
            console.print(f"[bold]{row.arrival.name}[/] waits: {row.ours.message}", highlight=False, soft_wrap=True)
    _summarise(console, rows)


def _asks(arrival: Arrival) -> str:
    return "\n".join(
        [f"{arrival.gpus} GPU" + "s" * (arrival.gpus > 1), *(f"{key}: {value}" for key, value in arrival.asks)]
    )


def _our_cells(row: DemoRow) -> tuple[str, str]:
    if isinstance(row.ours, Unschedulable):
        return "waits", ""
    record, node = row.ours.record, row.ours.node
    return _place(node, _indexes(node, record), record.affinity), _rate(record.bandwidth)


def _stock_cells(row: DemoRow) -> tuple[str, str]:
    if row.stock is None:
        return "waits", ""
    return _place(row.stock.node, row.stock.gpus, row.stock.affinity), _rate(row.stock.bandwidth)


def _place(node: str, gpus: Iterable[int], affinity: Affinity | None) -> str:
    words = [f"{node} {','.join(map(str, sorted(gpus)))}", *([f"over {affinity}"] if affinity else [])]
    return "\n".join(words)


def _indexes(node: str, record: PlacementRecord) -> list[int]:
    topology = next(simulated.topology for simulated in FLEET if simulated.name == node)
    return [topology.by_uuid[uuid] for gpus in record.containers.values() for uuid in gpus]


def _rate(bandwidth: Bandwidth | None) -> str:
    return f"{bandwidth.point:.0f}" if bandwidth else ""


def _summarise(console: Console, rows: Sequence[DemoRow]) -> None:
    """Compare the talking pods that both placed, by the geometric mean of their gains."""
    talking = [
        (row.ours.record.bandwidth.point, row.stock.bandwidth.point)
        for row in rows
        if isinstance(row.ours, BoundPod)
        and row.ours.record.bandwidth
        and row.stock
        and row.stock.bandwidth
        and ("communication", "none") not in row.arrival.asks
    ]
    gain = math.exp(sum(math.log(ours / stock) for ours, stock in talking) / len(talking))
    console.print(
        f"\n{len(talking)} pods with collectives were placed by both: {gain:.1f} times the predicted bandwidth of stock "
        "scheduling (geometric mean).",
        highlight=False,
    )
