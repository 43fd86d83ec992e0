"""`gputopo-bench compare`: run FGD's experiment on the user's cluster, and write the answer."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from benchmarks.placement.command import FIRST_SEED
from benchmarks.placement.gain.answer import MOVES, NAMES, OBSERVE, QUICK, GainMeasurement, Measure, MovesMeasured
from benchmarks.placement.gain.drawing import allocation, bandwidth_spread, intervals
from benchmarks.placement.gain.subject import opened, subject_of
from benchmarks.placement.gain.words import (
    all_figures,
    in_short,
    verdict,
    what_it_does_not_say,
    what_moving_brings,
    what_to_install,
    what_was_asked,
)
from benchmarks.placement.report.intervals import Interval
from benchmarks.placement.report.page import Part, ReportFigure
from benchmarks.placement.runner import Cell, run_cells
from benchmarks.placement.traces.node_types import NodeTypes
from benchmarks.placement.traces.openb import OpenbTrace

SEEDS, QUICK_SEEDS = 10, 3
MOST_NODES_WITH_MOVES = 200
"""With more a run takes minutes."""


def ask(source: Path, seeds: int, jobs: int, *, quick: bool, node_types: NodeTypes | None = None) -> GainMeasurement:
    """Run the experiment on a snapshot or on a trace folder; raises `BadTrace`, `ProcessLost`."""
    with opened(source, node_types) as folder:
        subject = subject_of(source, folder)
        trace = OpenbTrace(folder)
        (workload,) = trace.workloads
        shared = any(pod.shares for pod in trace.pods(workload))
        # NVIDIA's plugin, which decides in mode observe, hands out whole GPUs only.
        policies = [name for name in (QUICK if quick else NAMES) if not (shared and name == OBSERVE)]
        # The policy moves pods with whole GPUs, and looks at every node for each pod that finds no place.
        if not shared and subject.nodes <= MOST_NODES_WITH_MOVES:
            policies.append(MOVES)
        cells = [
            Cell("inflation", folder, workload, policy, seed)
            for seed in range(FIRST_SEED, FIRST_SEED + seeds)
            for policy in policies
        ]
        return GainMeasurement(subject, run_cells(cells, jobs, "compare"), seeds)


def parts_of(answer: GainMeasurement, cut: str) -> list[Part]:
    """Return the page: the gain first, then the figures, the pictures, and what it does not say."""
    pictures = {
        "measures": intervals(answer),
        "bandwidth": bandwidth_spread(answer),
        "allocation": allocation(answer),
    }
    return [
        *what_was_asked(answer),
        f"**In short:** {verdict(answer)}",
        *in_short(answer),
        *what_moving_brings(answer),
        *what_to_install(answer),
        *all_figures(answer),
        *(ReportFigure(name, svg, on_paper=False) for name, svg in pictures.items() if svg),
        *what_it_does_not_say(answer, cut),
    ]


def document_of(answer: GainMeasurement) -> dict[str, Any]:
    """Return the figures, for programs: policy → measure → mean and half of its 95 % interval, `null` for one run."""
    measures = {
        policy: {
            measure.name.lower(): _interval(value) for measure in Measure if (value := answer.measured(measure, policy))
        }
        for policy in answer.policies
    }
    return {
        "cluster": asdict(answer.subject),
        "runs": answer.seeds,
        "verdict": verdict(answer),
        "policies": measures,
        "moving": _moving(answer.moves()),
    }


def _moving(moves: MovesMeasured | None) -> dict[str, Any] | None:
    if moves is None:
        return None
    return {
        "more_pods": _interval(moves.more_pods.better_by),
        "pods_moved": moves.moved,
        "cost_gpu_hours": moves.cost_gpu_h,
    }


def _interval(value: Interval) -> dict[str, float | None]:
    return {"mean": value.mean, "half_width": value.half_width if isfinite(value.half_width) else None}


def what_was_cut(seeds: int) -> str:
    """Return what a quick answer leaves out."""
    left_out = ", ".join(name for policy, name in NAMES.items() if policy not in QUICK)
    return f"This was a quick run: {seeds} orders of arrival instead of {SEEDS}, and without {left_out}. Its intervals are wide."
