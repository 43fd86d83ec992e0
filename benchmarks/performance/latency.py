"""`gputopo-bench latency`: how long the verbs take over HTTP, beside the floor of a handler that only echoes the names.

The extender is the real process, and its caches are filled from an API double. The calls come one after another on one
connection, as kube-scheduler makes them: for each pod filter, prioritize, bind. The floor gets the same bodies in the
same run, and writes as much for its bind, to an API double of its own. At the end come bursts: binds of many pods at
once.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.progress import Progress

from benchmarks.performance.gpushare import gpushare_node, gpushare_pod, running_gpushare
from benchmarks.performance.machine import describe_machine
from benchmarks.performance.verbs import (
    BIND,
    FILTER,
    PODS,
    PRIORITIZE,
    Fleet,
    Sample,
    about,
    ask,
    binding,
    create,
    percentile,
    running_cluster,
    running_fleet,
)
from benchmarks.performance.worst import sample_worst
from benchmarks.processes.client import MERGE_PATCH, ApiClient, Json
from benchmarks.processes.echo import running_echo
from benchmarks.processes.extender_process import RunningExtender
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.fleet import (
    POD_SIZES,
    check_capacity,
    gpu_pod,
    mixed_fleet,
    share_pod,
)

_WARM_UP = 30
_PODS_FOR_A_BURST = 200
_FEW_NODES = 8
"""Of the floor's own cluster: its bind asks for nothing that grows with them."""
_PLAIN, _SHARED, _OF_THE_FLOOR = "plain", "shared", "floor"
"""Folders."""
FLOOR, PYDANTIC, GPUTOPO, ALL_NAMES = "floor", "pydantic", "gputopo", "gputopo, all names"
"""`prioritize` normally gets the candidates of `filter`; the floor gets all names, and so do we once more."""
API_ALONE = "API alone"
"""The writes of a bind with no extender between: what our caller and the API double need for them."""
GPUSHARE = "gpushare"
"""A peer in Go; its pods ask for a part of one GPU. It has no prioritize."""
SHARED, A_SHARE = "half shared", "half shared, 8 GiB"
"""Another extender, for which pods share GPUs of every second node: what its filter takes for the same pods, and for a share."""


@dataclass(frozen=True, slots=True)
class LatencyLoad:
    """What is asked."""

    nodes: int
    pods: int
    candidates: int
    binds_at_once: int = 30
    """Of a burst; 0: none."""
    shared: bool = False
    """Whether another extender is asked, for which half of the nodes are shared."""
    gpushare: Path | None = None
    """The program of a peer that is asked too."""
    worst: bool = False
    """Whether filter and prioritize are asked beside the fleets that cost most, too."""

    @property
    def bursts(self) -> int:
        """How many there are."""
        return -(-self.pods // _PODS_FOR_A_BURST) if self.binds_at_once else 0


def measure(load: LatencyLoad) -> dict[str, Any]:
    """Return rows of p50, p99 and p99.9 per verb and server, and the p50 of what the server computes, each beside the floor's.

    Raises `TooFewGpus` and `NotReady`.
    """
    machine = describe_machine()
    end_in_order_on_signals()
    return {"rows": _rows(sample(load), load.nodes), "candidates": load.candidates, "machine": machine}


def sample(load: LatencyLoad) -> Samples:
    """Return every call that was made; raises `TooFewGpus` and `NotReady`."""
    check_capacity(load.nodes, _WARM_UP + load.pods + load.bursts * load.binds_at_once)
    with tempfile.TemporaryDirectory(prefix="gputopo-latency-") as folder:
        for fleet in (_PLAIN, _SHARED, _OF_THE_FLOOR, GPUSHARE):
            (Path(folder) / fleet).mkdir()
        return asyncio.run(_measure(Path(folder), load))


def as_text(found: dict[str, Any]) -> str:
    """Return the rows as lines; in brackets how many times the floor it is."""
    lines = [f"{row['server']:<20}{_verb(row):<14}{_cells(row)}" for row in found["rows"]]
    return "\n".join([*lines, f"in brackets: times the floor; load {found['machine']['load']}"])


@dataclass(frozen=True, slots=True)
class Of:
    """What a sample is a sample of."""

    server: str
    verb: str
    at_once: int = 1
    """Calls of this verb that are made together."""


Samples = dict[Of, list[Sample]]


async def _measure(folder: Path, load: LatencyLoad) -> Samples:
    simulated = mixed_fleet(load.nodes)
    settings = {"scheduling": {"candidates": load.candidates}}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        ours = await enter(running_fleet(folder / _PLAIN, simulated, settings))
        half = None
        if load.shared:
            nodes = [
                replace(node, shared_gpus=8, shared_gib=place % 20 + 1) if place % 2 else node
                for place, node in enumerate(simulated)
            ]
            half = await enter(running_fleet(folder / _SHARED, nodes, settings))
        few = mixed_fleet(_FEW_NODES)
        api, kubeconfig = await enter(running_cluster(folder / _OF_THE_FLOOR, few))
        floor = Fleet(api, await enter(running_echo(folder, kubeconfig=kubeconfig)), kubeconfig)
        pydantic = await enter(running_echo(folder, pydantic=True))
        peer = None
        if load.gpushare:
            api, kubeconfig = await enter(running_cluster(folder / GPUSHARE, simulated, gpushare_node))
            peer = Fleet(api, await enter(running_gpushare(load.gpushare, kubeconfig, folder)), kubeconfig)
        session = await enter(aiohttp.ClientSession())
        names = [node.name for node in simulated], [node.name for node in few]
        samples = await _Course(session, ours, floor, pydantic, half, peer, *names).run(load)
    if load.worst:
        found = await sample_worst(folder, simulated, settings, load.pods)
        samples |= {Of(fleet, verb): calls for (fleet, verb), calls in found.items()}
    return samples


@dataclass(frozen=True, slots=True)
class _Course:
    """All calls of a run, one after another."""

    session: aiohttp.ClientSession
    ours: Fleet
    floor: Fleet
    pydantic: RunningExtender
    half_shared: Fleet | None
    gpushare: Fleet | None
    names: list[str]
    names_of_the_floor: list[str]

    async def run(self, load: LatencyLoad) -> Samples:
        samples: Samples = {}
        with Progress(console=Console(stderr=True), transient=True) as progress:
            for number in progress.track(range(_WARM_UP + load.pods), description="pods"):
                if number == _WARM_UP:
                    samples.clear()
                await self._one_pod(samples, number)
                if self.half_shared:
                    await self._one_pod_beside_shares(self.half_shared, samples, number)
                if self.gpushare:
                    await self._one_pod_of_gpushare(self.gpushare, samples, number)
            for number in progress.track(range(load.bursts), description="bursts"):
                await self._burst(samples, number, load.binds_at_once)
        return samples

    async def _ask(self, samples: Samples, of: Of, asked: RunningExtender, body: Json) -> Any:
        answer, sample = await ask(self.session, asked, of.verb, body)
        samples.setdefault(of, []).append(sample)
        return answer

    async def _one_pod(self, samples: Samples, number: int) -> None:
        spec = gpu_pod(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], schedulerName="gputopo")
        pod = await create(self.ours.api, spec)
        everywhere = about(pod, self.names)
        await self._ask(samples, Of(FLOOR, FILTER), self.floor.extender, everywhere)
        await self._ask(samples, Of(PYDANTIC, FILTER), self.pydantic, everywhere)
        fitting = (await self._ask(samples, Of(GPUTOPO, FILTER), self.ours.extender, everywhere))["NodeNames"]
        await self._ask(samples, Of(FLOOR, PRIORITIZE), self.floor.extender, everywhere)
        await self._ask(samples, Of(PYDANTIC, PRIORITIZE), self.pydantic, everywhere)
        await self._ask(samples, Of(ALL_NAMES, PRIORITIZE), self.ours.extender, everywhere)
        scores = await self._ask(samples, Of(GPUTOPO, PRIORITIZE), self.ours.extender, about(pod, fitting))
        best = max(scores, key=lambda entry: entry["Score"])["Host"]
        await self._ask(samples, Of(GPUTOPO, BIND), self.ours.extender, binding(pod, best))
        twin = await create(self.floor.api, spec)
        await self._ask(samples, Of(FLOOR, BIND), self.floor.extender, binding(twin, self._next_of_the_floor(number)))

    async def _burst(self, samples: Samples, number: int, at_once: int) -> None:
        """Bind so many pods at once, by us and by the floor; and make the same writes with nobody between."""
        specs = [
            gpu_pod(f"burst-{number}-{place}", POD_SIZES[place % len(POD_SIZES)], schedulerName="gputopo")
            for place in range(at_once)
        ]
        chosen = []
        for spec in specs:
            pod = await create(self.ours.api, spec)
            fitting, _ = await ask(self.session, self.ours.extender, FILTER, about(pod, self.names))
            scores, _ = await ask(self.session, self.ours.extender, PRIORITIZE, about(pod, fitting["NodeNames"]))
            chosen.append((pod, max(scores, key=lambda entry: entry["Score"])["Host"]))
        bound = [binding(pod, node) for pod, node in chosen]
        await self._together(samples, Of(GPUTOPO, BIND, at_once), self.ours.extender, bound)
        twins = [await create(self.floor.api, spec) for spec in specs]
        bound = [binding(pod, self._next_of_the_floor(place)) for place, pod in enumerate(twins)]
        await self._together(samples, Of(FLOOR, BIND, at_once), self.floor.extender, bound)
        for spec in specs:
            spec["metadata"]["name"] += "-alone"
        alone = [await create(self.floor.api, spec) for spec in specs]
        writes = [
            _timed(_writes(self.floor.api, pod["metadata"], self._next_of_the_floor(place)))
            for place, pod in enumerate(alone)
        ]
        samples.setdefault(Of(API_ALONE, BIND, at_once), []).extend(
            Sample(milliseconds, 0.0) for milliseconds in await asyncio.gather(*writes)
        )

    async def _together(self, samples: Samples, of: Of, asked: RunningExtender, bodies: Sequence[Json]) -> None:
        """Make all calls at once; each counts as its part of what the server computed for all."""
        before = asked.process.main_thread_cpu_ms()
        answers = await asyncio.gather(*(ask(self.session, asked, of.verb, body) for body in bodies))
        each = (asked.process.main_thread_cpu_ms() - before) / len(bodies)
        samples.setdefault(of, []).extend(Sample(sample.milliseconds, each) for _, sample in answers)

    async def _one_pod_beside_shares(self, shared: Fleet, samples: Samples, number: int) -> None:
        """Filter the same pod, and bind it to the node that came first; and filter a share."""
        spec = gpu_pod(f"pod-{number}", POD_SIZES[number % len(POD_SIZES)], schedulerName="gputopo")
        pod = await create(shared.api, spec)
        fitting = await self._ask(samples, Of(SHARED, FILTER), shared.extender, about(pod, self.names))
        await self._ask(samples, Of(SHARED, BIND), shared.extender, binding(pod, fitting["NodeNames"][0]))
        share = await create(shared.api, share_pod(f"share-{number}", 8, schedulerName="gputopo"))
        found = await self._ask(samples, Of(A_SHARE, FILTER), shared.extender, about(share, self.names))
        if not found.get("NodeNames"):
            raise RuntimeError(f"no node takes a share: {found}"[:600])
        await shared.api.call("DELETE", f"{PODS}/share-{number}")

    async def _one_pod_of_gpushare(self, peer: Fleet, samples: Samples, number: int) -> None:
        pod = await create(peer.api, gpushare_pod(f"pod-{number}", 8))
        fitting = await self._ask(samples, Of(GPUSHARE, FILTER), peer.extender, about(pod, self.names))
        nodes = fitting["NodeNames"]
        await self._ask(samples, Of(GPUSHARE, BIND), peer.extender, binding(pod, nodes[number % len(nodes)]))

    def _next_of_the_floor(self, number: int) -> str:
        return self.names_of_the_floor[number % len(self.names_of_the_floor)]


async def _timed(work: Awaitable[None]) -> float:
    begun = time.perf_counter()
    await work
    return 1000 * (time.perf_counter() - begun)


async def _writes(api: ApiClient, pod: Json, node: str) -> None:
    """Patch an annotation of the node, then post the Binding, as every bind here does."""
    patch = {"metadata": {"annotations": {"benchmark.gputopo.dev/claim": pod["uid"]}}}
    (await api.call("PATCH", f"/api/v1/nodes/{node}", patch, content_type=MERGE_PATCH)).ok()
    target = {"metadata": {"name": pod["name"], "uid": pod["uid"]}, "target": {"kind": "Node", "name": node}}
    (await api.call("POST", f"{PODS}/{pod['name']}/binding", target)).ok()


_FIGURES: dict[str, Callable[[Sequence[Sample]], float]] = {
    "p50": lambda calls: percentile([call.milliseconds for call in calls], 50),
    "p99": lambda calls: percentile([call.milliseconds for call in calls], 99),
    "p99_9": lambda calls: percentile([call.milliseconds for call in calls], 99.9),
    "p50_cpu": lambda calls: percentile([call.cpu_ms for call in calls], 50),
}
"""What is told of the calls of one verb to one server, in milliseconds."""


def _rows(samples: Samples, nodes: int) -> list[dict[str, Any]]:
    found = {
        of: {name: figure(calls) for name, figure in _FIGURES.items() if of.server != API_ALONE or name != "p50_cpu"}
        for of, calls in samples.items()
    }
    rows = []
    for of, figures in sorted(found.items(), key=lambda item: (item[0].at_once, item[0].server, item[0].verb)):
        row: dict[str, Any] = {"server": of.server, "verb": of.verb, "at_once": of.at_once, "nodes": nodes}
        row["calls"] = len(samples[of])
        row |= {f"{name}_ms": round(figure, 3) for name, figure in figures.items()}
        floor = found.get(replace(of, server=FLOOR))
        if floor and of.server not in (FLOOR, API_ALONE):
            row |= {f"{name}_to_floor": round(figure / floor[name], 2) for name, figure in figures.items()}
        if of.server in (SHARED, A_SHARE) and of.verb == FILTER:
            plain = found[Of(GPUTOPO, FILTER)]
            row |= {f"{name}_to_plain": round(figure / plain[name], 2) for name, figure in figures.items()}
        if of.at_once > 1 and of.server != API_ALONE:
            alone = found[replace(of, server=API_ALONE)]
            row["p99_above_api_ms"] = round(figures["p99"] - alone["p99"], 3)
        rows.append(row)
    return rows


def _verb(row: dict[str, Any]) -> str:
    return row["verb"] if row["at_once"] == 1 else f"{row['verb']}, {row['at_once']}"


def _cells(row: dict[str, Any]) -> str:
    cells = "".join(
        f"{name.replace('_9', '.9').replace('_cpu', ' CPU'):>9} {row[f'{name}_ms']:7.3f} ms"
        + (f" ({ratio:.2f})" if ratio else " " * 7)
        for name in _FIGURES
        if f"{name}_ms" in row
        for ratio in [row.get(f"{name}_to_floor")]
    )
    above = row.get("p99_above_api_ms")
    return cells if above is None else f"{cells}   p99 above the API alone {above:.1f} ms"
