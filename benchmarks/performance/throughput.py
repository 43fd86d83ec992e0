"""`gputopo-bench scheduler`: pods per second through a real kube-scheduler, with our extender, a trivial one, and none.

Each measurement has a control plane of its own on which nodes and waiting pods are created first. Then the scheduler
starts, and the time from the first Binding to the last one counts. In a burst the pods are created while it runs. etcd,
API server, scheduler and extender share the machine, and so does the watch that looks on. The trivial extender
(`benchmarks.processes.echo`) passes on as many candidates as ours, and its bind writes to node and pod as often. So the
ratio is what our decisions cost.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.performance.burst import alternating, create_pods, spread, until_bound
from benchmarks.performance.machine import describe_machine
from benchmarks.performance.retry_storm import cpu_percent, storm
from benchmarks.performance.writes import pods_per_second
from benchmarks.processes.client import ApiClient, Json
from benchmarks.processes.control_plane import RunningControlPlane, running_control_plane, running_scheduler
from benchmarks.processes.echo import running_echo
from benchmarks.processes.extender_process import RunningExtender, running_extender
from benchmarks.processes.kube_binaries import kubernetes_version
from benchmarks.processes.process import end_in_order_on_signals
from benchmarks.simulated.fleet import check_capacity, join, mixed_fleet
from topology.annotations import keys

ALL_IN_VIEW = 100
"""So many nodes that can take the pod kube-scheduler looks for at least (its `minFeasibleNodesToFind`)."""
_COUNTED_WITHIN_SECONDS = 0.5
"""The API server counts a request once it has answered it, and its watch may tell of it before that."""


class ExtenderChoice(StrEnum):
    """Whom the scheduler asks."""

    NONE = "none"
    TRIVIAL = "trivial"
    GPUTOPO = "gputopo"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to schedule."""

    extender: ExtenderChoice
    binder: str
    """`extender`, or `scheduler` where the extender has filter and prioritize only."""
    steered: bool = False
    """Whether our extender plans the queue ahead."""
    storm: bool = False
    """Whether pods that our extender rejects are tried again and again meanwhile."""
    default_view: bool = False
    """Whether kube-scheduler looks at as many nodes as it does by default, and not at as many as the load says."""


NONE = Variant(ExtenderChoice.NONE, "scheduler")
TRIVIAL, GPUTOPO = Variant(ExtenderChoice.TRIVIAL, "extender"), Variant(ExtenderChoice.GPUTOPO, "extender")
GPUTOPO_LOOKS = Variant(ExtenderChoice.GPUTOPO, "scheduler")
STEERED = Variant(ExtenderChoice.GPUTOPO, "extender", steered=True)
STORMY = Variant(ExtenderChoice.GPUTOPO, "extender", storm=True)
NONE_BY_DEFAULT = Variant(ExtenderChoice.NONE, "scheduler", default_view=True)
GPUTOPO_BY_DEFAULT = Variant(ExtenderChoice.GPUTOPO, "extender", default_view=True)
VARIANTS = (NONE, TRIVIAL, GPUTOPO, GPUTOPO_LOOKS, STEERED)
BY_DEFAULT = (NONE_BY_DEFAULT, GPUTOPO_BY_DEFAULT)
IN_A_STORM = (GPUTOPO, STORMY)
COMPARED = (
    (GPUTOPO, TRIVIAL),
    (GPUTOPO_LOOKS, NONE),
    (GPUTOPO, NONE),
    (STEERED, NONE),
    (STEERED, GPUTOPO),
    (STORMY, GPUTOPO),
    (GPUTOPO, NONE_BY_DEFAULT),
    (STEERED, NONE_BY_DEFAULT),
    (GPUTOPO_BY_DEFAULT, NONE_BY_DEFAULT),
    (GPUTOPO_BY_DEFAULT, GPUTOPO),
)


@dataclass(frozen=True, slots=True)
class ThroughputLoad:
    """What is to be scheduled, and how widely the scheduler looks."""

    nodes: int
    pods: int
    candidates: int
    percentage_of_nodes_to_score: int
    """0: kube-scheduler's own choice, which is 10 at 5,000 nodes."""
    burst: bool = False
    """Whether the pods are created while the scheduler runs, and not before it starts."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is compared: with kube-scheduler's default view too, where that is another one."""
        has_other_view = self.percentage_of_nodes_to_score and self.nodes > ALL_IN_VIEW
        return VARIANTS + BY_DEFAULT if has_other_view else VARIANTS

    def percentage(self, variant: Variant) -> int:
        """Return the percentage of nodes that kube-scheduler is told to score."""
        return 0 if variant.default_view else self.percentage_of_nodes_to_score


@dataclass(frozen=True, slots=True)
class ThroughputRow:
    """One measurement."""

    round: int
    extender: ExtenderChoice
    binder: str
    steered: bool
    nodes: int
    pods: int
    percentage_of_nodes_to_score: int
    burst: bool
    seconds: float
    """From the first Binding to the last."""
    pods_per_second: float
    writes_per_pod: float
    """Of nodes and pods, Bindings among them, as the API server counts them."""
    extender_cpu_ms_per_pod: float | None
    """What the extender computes for a pod: the figure here that other load stretches least."""
    created_to_bound_p50_seconds: float | None = None
    """Of a burst."""
    created_to_bound_p99_seconds: float | None = None
    storm: bool = False
    storm_cpu_percent: float | None = None
    """Of a core, what the extender computes for rejected pods that are tried again, once all others are bound."""
    default_view: bool = False


def measure(
    load: ThroughputLoad, rounds: int, binaries: Path, variants: Sequence[Variant] | None = None
) -> dict[str, Any]:
    """Return a row for each variant and round, and the ratios of pods per second; raises `TooFewGpus`, `NotReady`, `Stalled`."""
    variants = load.variants if variants is None else variants
    check_capacity(load.nodes, load.pods)
    machine = describe_machine()
    end_in_order_on_signals()
    rows = []
    for number, variant in alternating(variants, rounds, _name):
        with tempfile.TemporaryDirectory(prefix="gputopo-scheduler-") as folder:
            rows.append(asyncio.run(_measure(Path(folder), binaries, load, variant, number)))
    return {
        "rows": [asdict(row) for row in rows],
        "ratios": compare(rows),
        "writes_alone_pods_per_second": _writes_alone(binaries, load) if load.burst else None,
        "candidates": load.candidates,
        "kubernetes": kubernetes_version(binaries),
        "machine": machine,
    }


def compare(rows: Sequence[ThroughputRow]) -> list[dict[str, Any]]:
    """Return how many times as fast ours was in each comparison, round by round, and how many times as long pods waited."""
    there = {_variant(row) for row in rows}
    return [_ratio(rows, ours, other) for ours, other in COMPARED if {ours, other} <= there]


def as_text(found: dict[str, Any]) -> str:
    """Return rows and ratios as lines."""
    rows = [_line(row) for row in found["rows"]]
    ratios = [
        f"{ratio['of']} / {ratio['to']}: {ratio['median']:.2f}{_spread(ratio)}{_waits(ratio)}"
        for ratio in found["ratios"]
    ]
    if alone := found["writes_alone_pods_per_second"]:
        ratios.append(f"{'the writes of a steered pod alone':<30}{alone:8.1f} pods/s")
    return "\n".join(
        [*rows, *ratios, f"Kubernetes {found['kubernetes']}; load {found['machine']['load']} at the beginning"]
    )


def scheduler_configuration(extender_url: str | None, binder: str, percentage_of_nodes_to_score: int) -> Json:
    """Return the part of a `KubeSchedulerConfiguration` that matters here: the extender as the chart has it."""
    configuration: Json = {"percentageOfNodesToScore": percentage_of_nodes_to_score}
    if extender_url is None:
        return configuration
    extender = {
        "urlPrefix": f"{extender_url}/v1/extender",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 150,
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [
            {"name": name, "ignoredByScheduler": False} for name in (keys.GPU_RESOURCE, keys.SHARE_RESOURCE)
        ],
    }
    if binder == "extender":
        extender["bindVerb"] = "bind"
    return configuration | {"extenders": [extender]}


def _writes_alone(binaries: Path, load: ThroughputLoad) -> float:
    print("the writes alone", file=sys.stderr, flush=True)
    return asyncio.run(pods_per_second(binaries, load.nodes, load.pods))


async def _measure(folder: Path, binaries: Path, load: ThroughputLoad, variant: Variant, number: int) -> ThroughputRow:
    async with (
        running_control_plane(binaries, folder) as plane,
        ApiClient.from_kubeconfig(plane.kubeconfig) as api,
    ):
        await join(api, mixed_fleet(load.nodes))
        if not load.burst:
            await create_pods(api, load.pods)
        async with _asked(plane, load, variant) as extender:
            url = extender.url if extender else None
            configuration = scheduler_configuration(url, variant.binder, load.percentage(variant))
            before, computed = await _writes(api), _computed(extender)
            async with (
                storm(api, load.nodes) if variant.storm else nullcontext(),
                running_scheduler(plane, configuration) as scheduler,
            ):
                looking = asyncio.create_task(until_bound(api, load.pods, scheduler))
                created = await create_pods(api, load.pods) if load.burst else {}
                bound = await looking
                computed = _computed(extender) - computed
                await asyncio.sleep(_COUNTED_WITHIN_SECONDS)
                writes = await _writes(api) - before
                in_the_storm = await cpu_percent(extender.process) if variant.storm and extender else None
    seconds = max(bound.values()) - min(bound.values())
    waited = sorted(bound[name] - since for name, since in created.items())
    return ThroughputRow(
        number,
        variant.extender,
        variant.binder,
        variant.steered,
        load.nodes,
        load.pods,
        load.percentage(variant),
        load.burst,
        round(seconds, 2),
        round((load.pods - 1) / seconds, 1),
        round(writes / load.pods, 2),
        round(1000 * computed / load.pods, 2) if extender else None,
        _percentile(waited, 50),
        _percentile(waited, 99),
        variant.storm,
        in_the_storm,
        variant.default_view,
    )


def _percentile(rising: Sequence[float], percent: int) -> float | None:
    return round(rising[len(rising) * percent // 100], 2) if rising else None


@asynccontextmanager
async def _asked(
    plane: RunningControlPlane, load: ThroughputLoad, variant: Variant
) -> AsyncIterator[RunningExtender | None]:
    """Run the extender of a variant."""
    match variant.extender:
        case ExtenderChoice.NONE:
            yield None
        case ExtenderChoice.TRIVIAL:
            async with running_echo(plane.folder, candidates=load.candidates, kubeconfig=plane.kubeconfig) as echo:
                yield echo
        case ExtenderChoice.GPUTOPO:
            settings = {
                "scheduling": {"candidates": load.candidates, "schedulerNames": ["default-scheduler"]},
                "steering": {"enabled": variant.steered},
            }
            async with running_extender(plane.kubeconfig, plane.folder, settings) as ours:
                yield ours


def _computed(extender: RunningExtender | None) -> float:
    return extender.process.cpu_seconds() if extender else 0.0


async def _writes(api: ApiClient) -> int:
    """Return how often nodes and pods were written so far; events and leases are not counted."""
    counted = _WRITES.finditer(await api.text("/metrics"))
    return sum(int(float(found[1])) for found in counted)


_WRITES = re.compile(
    r'^apiserver_request_total\{(?=[^}]*resource="(?:nodes|pods)")(?=[^}]*verb="(?:APPLY|PATCH|POST|PUT)")[^}]*\} (\S+)$',
    re.MULTILINE,
)


def _ratio(rows: Sequence[ThroughputRow], ours: Variant, other: Variant) -> dict[str, Any]:
    pairs = [*zip(_rows_of(rows, ours), _rows_of(rows, other), strict=True)]
    ratios = [a.pods_per_second / b.pods_per_second for a, b in pairs]
    waits = [
        a.created_to_bound_p99_seconds / b.created_to_bound_p99_seconds
        for a, b in pairs
        if a.created_to_bound_p99_seconds and b.created_to_bound_p99_seconds
    ]
    return {
        "of": _name(ours),
        "to": _name(other),
        **spread(ratios),
        "created_to_bound_p99": round(statistics.median(waits), 3) if waits else None,
    }


def _rows_of(rows: Sequence[ThroughputRow], variant: Variant) -> list[ThroughputRow]:
    return sorted((row for row in rows if _variant(row) == variant), key=lambda row: row.round)


def _variant(row: ThroughputRow) -> Variant:
    return Variant(row.extender, row.binder, row.steered, row.storm, row.default_view)


def _name(variant: Variant) -> str:
    if variant.steered:
        return f"{variant.extender} (steered)"
    if variant.storm:
        return f"{variant.extender} (retry storm)"
    if variant.default_view:
        return f"{variant.extender} (default view)"
    looks_on = variant.extender is not ExtenderChoice.NONE and variant.binder == "scheduler"
    return f"{variant.extender}{' (filter, prioritize)' if looks_on else ''}"


def _line(row: dict[str, Any]) -> str:
    variant = Variant(ExtenderChoice(row["extender"]), row["binder"], row["steered"], row["storm"], row["default_view"])
    who = _name(variant)
    cpu = row["extender_cpu_ms_per_pod"]
    told = f"{who:<30}{row['pods_per_second']:8.1f} pods/s{row['writes_per_pod']:8.2f} writes per pod"
    if row["burst"]:
        p50, p99 = row["created_to_bound_p50_seconds"], row["created_to_bound_p99_seconds"]
        told += f"   created -> bound {p50:.2f} s, p99 {p99:.2f} s"
    if cpu is not None:
        told += f"{cpu:8.1f} ms of the extender's CPU per pod"
    return f"{told}{row['storm_cpu_percent']:8.1f} % of a core afterwards" if row["storm"] else told


def _waits(ratio: dict[str, Any]) -> str:
    found = ratio["created_to_bound_p99"]
    return "" if found is None else f", created -> bound p99 {found:.2f}"


def _spread(ratio: dict[str, Any]) -> str:
    return "" if ratio["lowest"] == ratio["highest"] else f" ({ratio['lowest']:.2f} to {ratio['highest']:.2f})"
