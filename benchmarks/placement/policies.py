"""All policies by the name that the command line and the reports use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final

from benchmarks.placement.baselines import mapa, stock
from benchmarks.placement.baselines.amaral import TopoAware
from benchmarks.placement.baselines.best_fit import BestFit
from benchmarks.placement.baselines.dot_product import DotProduct
from benchmarks.placement.baselines.fgd import Fgd
from benchmarks.placement.baselines.gpu_clustering import GpuClustering
from benchmarks.placement.baselines.gpu_packing import GpuPacking
from benchmarks.placement.baselines.gpushare import gpushare
from benchmarks.placement.baselines.hami import hami_binpack, hami_spread
from benchmarks.placement.baselines.hived import Hived
from benchmarks.placement.baselines.kai import KaiConsolidation
from benchmarks.placement.baselines.koordinator import koordinator, koordinator_most
from benchmarks.placement.baselines.random_node import RandomNode
from benchmarks.placement.baselines.repacking import PERIOD_MINUTES, Repacking
from benchmarks.placement.baselines.vgpu_manager import vgpu_manager
from benchmarks.placement.cluster import Cluster
from benchmarks.placement.jobs import PodSize
from benchmarks.placement.policy import NodeThenGpus, PlacementPolicy, PolicyFactory
from benchmarks.placement.product import Gputopo, GputopoObserve
from benchmarks.placement.product_moves import GputopoMoves
from benchmarks.placement.product_queue import GputopoAsOne, GputopoQueue
from benchmarks.placement.scoring import TieBreak
from topology.value.score import Weights

PRODUCT: Final = "gputopo"
"""`gputopo@0.3` is the same with a λ of 0.3, the weight of the pods to come, `gputopo@0.3:8` with an admission of 8 too.
`gputopo-told` starts from how often each size of pod comes, as FGD does, and not from a prior; all learn as they go.
`gputopo-required`: jobs that say `heavy` also require NVLink, where an empty machine has it, and wait for it. `gputopo-observe`:
NVIDIA's device plugin chooses the GPUs on the node, and the node is chosen by what it is likely to choose.
`gputopo-as-one`: queues are planned ahead as one, by what `extender.steerQueues` switches on. `gputopo-queue`: all pods wait
in the queue, and gangs start whole; with `gputopo-queue-expected` each pod states its expected duration. `gputopo-moves` moves
up to two running pods for one that finds no place. With `gputopo-moves-5m` each of them does up to five minutes of its work
again; so with `kai-consolidation-5m` and `repacking-5m`."""

MOVING: Final = tuple(
    f"{base}{cost}" for base in (f"{PRODUCT}-moves", "kai-consolidation", "repacking") for cost in ("", "-5m", "-30m")
)
"""Policies that move running jobs, at three restart costs."""

BASELINES: Final[Mapping[str, PolicyFactory]] = MappingProxyType(
    {
        "stock-least": stock.stock_least,
        "stock-most": stock.stock_most,
        "stock-least-plain": stock.stock_least_plain,
        "stock-most-plain": stock.stock_most_plain,
        "dra-first-fit": lambda cluster, random: NodeThenGpus(cluster, random, stock.cpu_and_memory, mapa.first_free),
        "hami-binpack": hami_binpack,
        "hami-spread": hami_spread,
        "vgpu-manager": vgpu_manager,
        "koordinator": koordinator,
        "koordinator-most": koordinator_most,
        "gpushare": gpushare,
        "hived": Hived,
        "hived-links": lambda cluster, random: Hived(cluster, random, pairs_by_link=True),
        "mapa-greedy": lambda cluster, random: NodeThenGpus(cluster, random, stock.most_allocated, mapa.greedy),
        "mapa-preserve": mapa.MapaPreserve,
        "mapa-preserve-yielding": mapa.MapaPreserveYielding,
        "mapa-preserve-fleet": mapa.MapaPreserveFleet,
        "mapa-baseline": lambda cluster, random: NodeThenGpus(cluster, random, stock.most_allocated, mapa.first_free),
        "mapa-topo-aware": lambda cluster, random: NodeThenGpus(cluster, random, stock.most_allocated, mapa.topo_aware),
        "topo-aware": TopoAware,
        "topo-aware-links": lambda cluster, random: TopoAware(cluster, random, by_links=True),
        "topo-aware-p": lambda cluster, random: TopoAware(cluster, random, patient=True),
        "random": RandomNode,
        "dot-product": DotProduct,
        "gpu-clustering": GpuClustering,
        "gpu-packing": GpuPacking,
        "best-fit": BestFit,
        "best-fit-lot": lambda cluster, random: BestFit(cluster, random, TieBreak.LOT),
    }
)
"""Policies that know nothing of the pods to come."""


def _fgd(ties: TieBreak, levels: int) -> Callable[[Cluster, Random, Sequence[PodSize]], PlacementPolicy]:
    return lambda cluster, random, pods: Fgd(cluster, random, pods, ties, levels)


INFORMED: Final[Mapping[str, Callable[[Cluster, Random, Sequence[PodSize]], PlacementPolicy]]] = MappingProxyType(
    {
        "fgd": _fgd(TieBreak.NAME, 100),
        "fgd-lot": _fgd(TieBreak.LOT, 100),
        "fgd-extender": _fgd(TieBreak.NAME, 10),
        "fgd-extender-lot": _fgd(TieBreak.LOT, 10),
    }
)
"""Policies that are told beforehand how often each kind of pod comes."""


class UnknownPolicy(Exception):
    """A name that no policy has; the text says which there are."""


def check_policy(name: str) -> None:
    """Raise `UnknownPolicy` unless there is a policy of that name."""
    if name not in BASELINES and name not in INFORMED and not _MOVING.fullmatch(name):
        _product_form(name)


def policy_for_pods(name: str, pods: Sequence[PodSize], hour_s: float = 3600.0) -> PolicyFactory:
    """Return the policy of that name for a workload of such pods; raises `UnknownPolicy`.

    An hour of the workload has `hour_s` of its seconds.
    """
    if name in BASELINES:
        return BASELINES[name]
    if moving := _MOVING.fullmatch(name):
        return _moving(moving, hour_s)
    if name in INFORMED:
        informed = INFORMED[name]
        return lambda cluster, random: informed(cluster, random, pods)
    form = _product_form(name)
    weights = _weights(form, pods)
    required, shared = form["required"] is not None, any(pod.shares for pod in pods)
    if shared and (form["observe"] or form["as_one"] or form["queue"] or form["moves"]):
        raise UnknownPolicy(f"{name}: it hands out whole GPUs, and pods of this workload share them")
    if form["observe"]:
        return lambda cluster, random: GputopoObserve(cluster, weights, random, required=required)
    if form["as_one"]:
        return lambda cluster, _: GputopoAsOne(cluster, weights, required=required)
    if form["queue"]:
        expected = form["expected"] is not None
        return lambda cluster, _: GputopoQueue(cluster, weights, required=required, expected=expected)
    if form["moves"]:
        restart_s = _restart_s(form, hour_s)
        return lambda cluster, _: GputopoMoves(cluster, weights, restart_s, hour_s, required=required)
    return lambda cluster, _: Gputopo(cluster, weights, required=required, shared=shared)


_NUMBER = r"[0-9]{1,6}(?:\.[0-9]{1,6})?"
_MINUTES = r"(?:-(?P<minutes>[0-9]{1,4})m)?"
_MOVING = re.compile(f"(?P<base>kai-consolidation|repacking){_MINUTES}")
_PRODUCT_NAME = re.compile(
    rf"{PRODUCT}(?:(?P<observe>-observe)|(?P<as_one>-as-one)|(?P<queue>-queue)(?P<expected>-expected)?|(?P<moves>-moves{_MINUTES}))?"
    rf"(?P<told>-told)?(?P<required>-required)?(?:@(?P<pods_to_come>{_NUMBER})(?::(?P<admission>{_NUMBER}))?)?"
)


def _moving(form: re.Match[str], hour_s: float) -> PolicyFactory:
    """Return the baseline of that name that moves running jobs."""
    restart_s, period_s = _restart_s(form, hour_s), PERIOD_MINUTES * hour_s / 60
    if form["base"] == "repacking":
        return lambda cluster, random: Repacking(cluster, random, restart_s, period_s)
    return lambda cluster, random: KaiConsolidation(cluster, random, restart_s)


def _restart_s(form: re.Match[str], hour_s: float) -> float:
    """Return what a moved job loses at most, which is in the name of its policy."""
    return int(form["minutes"] or 0) * hour_s / 60


def _product_form(name: str) -> re.Match[str]:
    """Return the parts of one of the product's names."""
    found = _PRODUCT_NAME.fullmatch(name)
    if found is None:
        forms = (
            f"{PRODUCT}-observe",
            "kai-consolidation",
            "kai-consolidation-MINUTESm",
            "repacking",
            "repacking-MINUTESm",
            f"{PRODUCT}-as-one",
            f"{PRODUCT}-moves",
            f"{PRODUCT}-moves-MINUTESm",
            f"{PRODUCT}-told",
            f"{PRODUCT}-required",
            f"{PRODUCT}@λ",
            f"{PRODUCT}@λ:ADMISSION",
        )
        known = ", ".join([*BASELINES, *INFORMED, PRODUCT, *forms])
        raise UnknownPolicy(f"no policy is called {name!r}; there are {known}")
    return found


def _weights(form: re.Match[str], pods: Sequence[PodSize]) -> Weights:
    """Return the weights of that form of the product."""
    weights = Weights()
    return Weights(
        pods_to_come=float(form["pods_to_come"] or weights.pods_to_come),
        admission=float(form["admission"] or weights.admission),
        demand=(_demand(pods) if form["told"] else ()) or weights.demand,
    )


def _demand(pods: Sequence[PodSize]) -> tuple[tuple[int, float], ...]:
    """Return the share of pods by GPUs asked for."""
    sizes = Counter(pod.gpus for pod in pods if pod.gpus and not pod.shares)
    return tuple((size, count / sizes.total()) for size, count in sorted(sizes.items()))
