"""What the plugin prints of each answer."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from extender.inspect.drift import Difference, Drift
from extender.inspect.fragmentation import Fragmentation, Room
from extender.inspect.inspection import (
    BandwidthInfo,
    BestSet,
    Explanation,
    GpuInfo,
    GpuState,
    NodeDetail,
    NodeInfo,
    NodeList,
    PodInfo,
)
from extender.inspect.measured import MeasuredReport, MeasuredSet
from extender.inspect.nvlinks import LinkFaultInfo
from extender.inspect.outlook import written
from extender.inspect.pods import PodList
from extender.inspect.status import Finding, Status
from extender.inspect.taken import fault_of
from extender.inspect.why import NodeVerdict, Why
from extender.kubectl.device_rows import GPUS, SHARED, SLICES, gpu_row, share_of, share_rows, slice_row
from extender.kubectl.form import COLUMNS, Form, say
from extender.kubectl.replay import Replay, Step
from extender.kubectl.status_lines import version_lines
from extender.kubectl.top import GpuUse, Top

NO_GPUS = "no node has GPUs"
_FEW = 3
"""Nodes that a table names."""


def print_nodes(listed: NodeList, form: Form) -> None:
    """Print a row for each node."""
    if form.document(listed, (f"node/{node.name}" for node in listed.nodes)):
        return
    form.table(
        ("NAME", "MACHINE", "GPUS", "FREE", "NOTE", "IN-USE", "SHARED", "HELD", "UNUSABLE"),
        map(_node_row, listed.nodes),
        4,
        empty=NO_GPUS,
    )


def print_pods(listed: PodList, form: Form) -> None:
    """Print a row for each pod."""
    if form.document(listed, (f"pod/{pod.name}" for pod in listed.pods)):
        return
    heads = ("NAMESPACE", "NAME", "REQUESTS", "NODE", "GPUS", "AFFINITY", "PREDICTED-GB/S", "PHASE")
    form.table(heads, map(_pod_row, listed.pods), 1, empty="no pod requests GPUs")


def _pod_row(pod: PodInfo) -> tuple[str, ...]:
    placed = (_ring(pod.indexes), pod.affinity or "", _predicted(pod.bandwidth_gb_per_s))
    return (pod.namespace, pod.name, pod.asked, pod.node or "", *placed, pod.phase or "")


def print_node(node: NodeDetail, form: Form) -> None:
    """Print one node: its wires, its GPUs, and what the free ones are worth."""
    if form.document(node, [f"node/{node.name}"]):
        return
    say(
        f"{node.name}: {_machine(node)}"
        + (f"; closed: {node.closed}" if node.closed else "")
        + (f"; {node.set_aside}" if node.set_aside else "")
    )
    _say_facts(node)
    if not node.gpus:
        return
    say()
    labels = [f"GPU{gpu.index}" for gpu in node.gpus]
    form.table(("", *labels), ((label, *row) for label, row in zip(labels, node.matrix, strict=False)))
    say()
    form.table(GPUS, map(gpu_row, node.gpus), 2)
    say()
    if node.slices:
        form.table(SLICES, map(slice_row, node.slices), 2)
        say()
    if node.shared:
        form.table(SHARED, (row for gpu in node.shared for row in share_rows(gpu)))
        say()
    if any(gpu.outlook for gpu in node.gpus):
        form.table(("GPU", "SINCE", "NEXT", "WHEN", "TO-DO"), _outlook_rows(node.gpus))
        say()
    if node.link_faults:
        form.table(("GPU", "NVLINKS", "SINCE", "WHAT", "NEXT", "WHEN"), map(_link_fault_row, node.link_faults))
        say()
    nothing = "one GPU is free" if node.free == 1 else "" if node.free else "no GPU is free"
    form.table(("BEST-OF", "GPUS", "AFFINITY", "PREDICTED-GB/S"), map(_set_row, node.best_sets), empty=nothing)


def _say_facts(node: NodeDetail) -> None:
    if node.device_plugin:
        say(f"device plugin: {node.device_plugin.line}")
    if node.sharing:
        say(f"shared by memory: {node.sharing.line}")
    for offer in node.offers:
        say(f"offered: {offer.line}")
    for sign in node.signs:
        say(f"said by others: {sign.line}")
    for holder in node.unknown_holders:
        say(f"held: {holder.line}")
    for device in node.unknown_devices:
        say(f"allocated by DRA: {device.line}")


def _link_fault_row(fault: LinkFaultInfo) -> tuple[str, ...]:
    gpu = fault.uuid if fault.index is None else str(fault.index)
    return gpu, ",".join(map(str, fault.links)), written(fault.since), fault.reason, fault.next, written(fault.until)


def _outlook_rows(gpus: Iterable[GpuInfo]) -> Iterator[tuple[str, ...]]:
    for gpu in gpus:
        if outlook := gpu.outlook:
            yield str(gpu.index), written(outlook.since), outlook.next, written(outlook.until), outlook.remedy


def print_pod(explanation: Explanation, form: Form) -> None:
    """Print where one pod is, or could go."""
    pod = explanation.pod
    if form.document(explanation, [f"pod/{pod.name}"]):
        return
    _say_scheduler(explanation)
    say(f"{pod.namespace}/{pod.name}: " + _whereabouts(explanation), end="\n\n")
    if not _is_understood(explanation):
        return
    if pod.node:
        placed = (_ring(pod.indexes), pod.affinity or "", _predicted(pod.bandwidth_gb_per_s))
        form.table(("GPUS", "AFFINITY", "PREDICTED-GB/S"), [placed])
    else:
        _print_choice(explanation, form)


def print_status(status: Status, form: Form) -> None:
    """Print the cluster as a whole, and what needs somebody."""
    troubled = dict.fromkeys(name for finding in status.findings for name in finding.nodes)
    if form.document(status, (f"node/{name}" for name in troubled)):
        return
    say(
        f"nodes: {status.nodes}; GPUs: {status.gpus}, {status.free} free"
        + (f" ({status.free_set_aside} more on cordoned or tainted nodes)" if status.free_set_aside else "")
        + f"; pods: {status.pods}, {status.waiting} waiting"
        + (f" ({status.waiting_for_others} for other schedulers)" if status.waiting_for_others else "")
        + (f"; placeholders that ask for nodes: {status.placeholders}" if status.placeholders else "")
    )
    for line in version_lines(status):
        say(line)
    say()
    if form.is_wide and status.control_plane.policies:
        form.table(
            ("POLICY", "DOES"), ((policy.name, ",".join(policy.actions)) for policy in status.control_plane.policies)
        )
        say()
    if status.machines:
        form.table(("NODES", "MACHINE"), ((str(count), machine) for machine, count in status.machines.items()))
        say()
    if not status.findings:
        say("nothing needs you")
        return
    form.table(("NODES", "WHAT", "DO", "WHERE"), map(_finding_row, status.findings))


def _finding_row(finding: Finding) -> tuple[str, ...]:
    where = ", ".join(finding.nodes[:_FEW]) + (", …" if len(finding.nodes) > _FEW else "")
    return str(len(finding.nodes)), finding.what, finding.remedy, where


def print_fragmentation(fragmentation: Fragmentation, form: Form) -> None:
    """Print a row for each size of pods."""
    in_the_way = dict.fromkeys((pod.namespace, pod.name) for room in fragmentation.sizes for pod in room.in_the_way)
    if form.document(fragmentation, (f"pod/{name}" for _, name in in_the_way)):
        return
    heads = ("GPUS", "FIT-NOW", "BY-COUNT", "IF-EMPTY", "IN-THE-WAY")
    form.table(heads, map(_room_row, fragmentation.sizes), empty=NO_GPUS)
    if fragmentation.shares:
        say()
        rows = (map(str, (room.gib, room.now, room.by_memory, room.empty)) for room in fragmentation.shares)
        form.table(("SHARE-GIB", "FIT-NOW", "BY-MEMORY", "IF-EMPTY"), map(tuple, rows))


def _room_row(room: Room) -> tuple[str, ...]:
    pods = ", ".join(f"{pod.namespace}/{pod.name} (+{pod.room})" for pod in room.in_the_way)
    return (*map(str, (room.gpus, room.now, room.by_count, room.empty)), pods)


def print_what_if(explanation: Explanation, form: Form) -> None:
    """Print where a pod could go that does not exist."""
    fits = () if explanation.scheduler_problem else explanation.fits
    if form.document(explanation, (f"node/{fit.node}" for fit in fits)):
        return
    estimate = " (an estimate, no extender was asked)" if explanation.estimate else ""
    _say_scheduler(explanation)
    say(f"{explanation.pod.namespace}/{explanation.pod.name}: if it were created now{estimate}", end="\n\n")
    if _is_understood(explanation):
        _print_choice(explanation, form)


def _is_understood(explanation: Explanation | Why) -> bool:
    """Print what features say of the pod, what is wrong with it, else which group it is in, and what a new node would do."""
    for note in explanation.notes:
        say(note.line, end="\n\n")
    if explanation.problem:
        say(explanation.problem)
    new_nodes = None if explanation.problem or explanation.fits or explanation.pod.node else explanation.new_nodes
    for line in (part.line for part in (explanation.group, new_nodes) if part and not explanation.problem):
        say(line, end="\n\n")
    return not explanation.problem


def _say_scheduler(explanation: Explanation | Why) -> None:
    """Print first that no scheduler will ask us about the pod, and that what follows is about one that names ours."""
    if explanation.scheduler_problem:
        say(f"{explanation.pod.namespace}/{explanation.pod.name}: {explanation.scheduler_problem}", end="\n\n")
        say("What follows holds for the same pod with that name.")


def _print_choice(explanation: Explanation, form: Form) -> None:
    if explanation.fits:
        form.table(
            ("NODE", "SCORE", "BEST-OF", "GPUS", "AFFINITY", "PREDICTED-GB/S"),
            ((fit.node, f"{fit.score:z.3f}", *_set_row(fit)) for fit in explanation.fits),
        )
    else:
        say("it fits on no node now")
    if not explanation.refusals:
        return
    say()
    form.table(
        ("NODES", "REFUSED-BECAUSE", "FOR-EXAMPLE", "NUMBERS-THERE", "WHAT-WOULD-HELP"),
        (
            (str(refusal.nodes), refusal.message, refusal.example, refusal.figures, refusal.remedy)
            for refusal in explanation.refusals
        ),
        2,
        folds=True,
    )


def print_why(answer: Why, form: Form, node: str = "") -> None:
    """Print the verdict on each node, and what would make the pod fit there; `node` is the one that was named, if any."""
    fits = () if answer.scheduler_problem else (verdict.node for verdict in answer.nodes if verdict.fits)
    if form.document(answer, (f"node/{name}" for name in fits)):
        return
    pod = answer.pod
    _say_scheduler(answer)
    say(f"{pod.namespace}/{pod.name}: " + _whereabouts(answer), end="\n\n")
    if not _is_understood(answer):
        return
    for line in answer.choice:
        for part in [line] if form.is_wide else wrap(line, COLUMNS, break_on_hyphens=False):
            say(part)
    if pod.node and node not in ("", pod.node):
        say()
        say(f"the pod is placed, so there is no verdict on {node}; to check all nodes for a pod like it:")
        say(f"kubectl get pod {pod.name} -n {pod.namespace} -o json | kubectl gputopo what-if -f -")
    if not pod.node:
        heads = ("NODE", "FITS", "RULE", "NUMBERS", "WHAT-WOULD-HELP", "REASON", "SCORE")
        form.table(heads, map(_verdict_row, answer.nodes), 2, empty=NO_GPUS, folds=True)


def print_replay(replay: Replay, form: Form) -> None:
    """Print what becomes of each pod that waits."""
    if form.document(replay, (f"pod/{step.pod.name}" for step in replay.steps)):
        return
    if not replay.steps:
        say("no pod waits")
        return
    form.table(("POD", "NODE", "GPUS", "AFFINITY", "PREDICTED-GB/S", "WAITS-BECAUSE"), map(_step_row, replay.steps))


def _step_row(step: Step) -> tuple[str, ...]:
    pod = step.pod
    placed = (_ring(pod.indexes), pod.affinity or "", _predicted(pod.bandwidth_gb_per_s))
    return (f"{pod.namespace}/{pod.name}", pod.node or "", *placed, step.reason)


def print_drift(drift: Drift, form: Form) -> None:
    """Print a row for each pod that has other GPUs than is written."""
    if form.document(drift, (f"pod/{pod.name}" for pod in drift.differences)):
        return
    if not drift.differences:
        say("every pod has the GPUs that were planned for it")
        return
    heads = ("POD", "NODE", "PLANNED", "LEDGER", "SEEN", "WHAT")
    form.table(heads, map(_difference_row, drift.differences))


def _difference_row(difference: Difference) -> tuple[str, ...]:
    gpus = (_ring(difference.planned), _ring(difference.claimed), _ring(difference.seen))
    return (f"{difference.namespace}/{difference.name}", difference.node, *gpus, difference.what)


def print_measured(report: MeasuredReport, form: Form) -> None:
    """Print a row for each figure in force, and what is wrong with the file."""
    if form.document(report, (f"{row.machine}/{_ring(row.gpus)}" for row in report.sets)):
        return
    if report.file is None:
        say("no file of measured bandwidths is configured; all is predicted")
        return
    for complaint in filter(None, (report.problem and f"{report.file}: {report.problem}", *report.refused)):
        say(f"not believed: {complaint}")
    heads = (
        "MACHINE",
        "GPUS",
        "MEASURED-GB/S",
        "PREDICTED-GB/S",
        "OFF-BY",
        "INSIDE",
        "RUNS",
        "AT",
        "NODE",
        "NCCL",
        "MODELS",
    )
    form.table(heads, map(_measured_row, report.sets), 3, empty="the file has no figure that is in force")


def _measured_row(row: MeasuredSet) -> Sequence[str]:
    rates = (_interval(row.measured), _interval(row.predicted), f"{row.error_ratio:+.0%}")
    conditions = (str(row.runs), row.at, row.node, row.nccl or "", ", ".join(row.models))
    return row.machine, _ring(row.gpus), *rates, "yes" if row.is_inside else "no", *conditions


def print_top(usage: Top, form: Form) -> None:
    """Print a row for each GPU, and on stderr of which nodes nothing was heard."""
    for node, why in usage.unheard.items():
        say(f"{node}: {why}", to=sys.stderr)
    if form.document(usage, (gpu.uuid for gpu in usage.gpus)):
        return
    form.table(
        ("NODE", "GPU", "STATE", "POD", "USE", "MEMORY-GIB", "POWER", "TEMP", "UUID"),
        map(_use_row, usage.gpus),
        1,
        empty="no GPU to show",
    )


def _use_row(gpu: GpuUse) -> tuple[str, ...]:
    def shown(value: float | None, unit: str, scale: float = 1.0) -> str:
        return "" if value is None else f"{value * scale:.0f}{unit}"

    memory = shown(gpu.memory_used_bytes, "", 2**-30)
    memory += f"/{shown(gpu.memory_total_bytes, '', 2**-30)}" if memory and gpu.memory_total_bytes else ""
    figures = (shown(gpu.utilization_ratio, "%", 100), memory)
    heat = (shown(gpu.power_watts, "W"), shown(gpu.temperature_celsius, "C"))
    return (gpu.node, str(gpu.index), gpu.state, gpu.pod or ",".join(gpu.pods), *figures, *heat, gpu.uuid)


def _whereabouts(explanation: Explanation | Why) -> str:
    if explanation.pod.node:
        return f"on {explanation.pod.node}{share_of(explanation.pod)}"
    return "waits (an estimate, no extender was asked)" if explanation.estimate else "waits"


def _verdict_row(verdict: NodeVerdict) -> Sequence[str]:
    if verdict.best is None:
        return verdict.node, "no", verdict.message, verdict.figures, verdict.remedy, verdict.reason or "", ""
    best = verdict.best
    predicted = f" {_predicted(best.bandwidth_gb_per_s)} GB/s" if best.bandwidth_gb_per_s else ""
    figures = f"GPUs {_ring(best.indexes)}" + (f" {best.affinity}" if best.affinity else "") + predicted
    return verdict.node, "yes", "", figures, "", "", f"{verdict.score:z.3f}"


def _node_row(node: NodeInfo) -> Sequence[str]:
    states: Counter[GpuState] = Counter(gpu.state for gpu in node.gpus)
    in_use = states["claimed"] + states["unplanned"] + states["conflict"]
    counts = (str(in_use), *(str(states[state]) for state in ("shared", "held", "unusable")))
    return node.name, _machine(node), str(len(node.gpus)), str(node.free), fault_of(node), *counts


def _set_row(best: BestSet) -> Sequence[str]:
    return str(best.gpus), _ring(best.indexes), best.affinity or "", _predicted(best.bandwidth_gb_per_s)


def _machine(node: NodeInfo) -> str:
    counts = Counter(gpu.model for gpu in node.gpus)
    return ", ".join(f"{count} x {model}" for model, count in counts.items()) or "<none>"


def _ring(indexes: Iterable[int]) -> str:
    return ",".join(map(str, indexes))


def _predicted(predicted: BandwidthInfo | None) -> str:
    if predicted is None:
        return ""
    return _interval(predicted) + (" measured" if predicted.measured else "")


def _interval(rate: BandwidthInfo) -> str:
    return f"{rate.point:.0f} ({rate.low:.0f}-{rate.high:.0f})"
