"""What a free set of GPUs is worth to the pods to come, and why: the answer behind a node's score, for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from topology.effort import finish
from topology.node.model import NodeTopology
from topology.placement.decide import Situation, decide
from topology.placement.topology_class import TopologyClass
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest
from topology.value.score import Weights


def explain_value(node: NodeTopology, free: int, weights: Weights) -> dict[str, Any]:
    """Return the value of the free GPUs (mask over positions), and what each size of pod would take of them and cost.

    `gain`, what the pod itself has of its GPUs, and `loss`, what future pods lose by it, are in the unit of the values.
    `score`, which ranks nodes, is the gain less λ (`foresight`) times the loss. `sets_left` is how many of that size the
    rest still has, one after the other.
    """
    topology_class = TopologyClass(node)
    finish(topology_class.appraise(weights))
    return {
        "free": _indexes(node, free),
        "value": round(topology_class.value(free), 3),
        "value_of_all": round(topology_class.value((1 << len(node)) - 1), 3),
        "computed": topology_class.table is not None,
        "foresight": weights.pods_to_come,
        "pods": [*_pods(topology_class, free, weights)],
    }


def _pods(topology_class: TopologyClass, free: int, weights: Weights) -> Iterator[dict[str, Any]]:
    node = topology_class.node
    for size, share in weights.demand:
        verdict = decide(Situation(topology_class, free), GpuRequest.plain(size))
        if not isinstance(verdict, Placement):
            yield {"gpus": size, "share": share, "takes": None, "reason": verdict.on_this_node}
            continue
        taken = _mask(verdict)
        loss = topology_class.value_lost(free, taken)
        yield {
            "gpus": size,
            "share": share,
            "takes": [node.gpus[position].index for position in verdict.gpus],
            "bandwidth_gb_per_s": verdict.bandwidth and verdict.bandwidth.point,
            "gain": round(verdict.score + weights.pods_to_come * loss, 3) + 0.0,  # never a minus zero
            "loss": round(loss, 3),
            "score": round(verdict.score, 3),
            "sets_left": _sets_left(topology_class, free & ~taken, size),
        }


def describe_value(answer: dict[str, Any]) -> str:
    """Return the same as a table."""
    how = "computed" if answer["computed"] else "by formula: too many different free sets"
    if not answer["value_of_all"]:
        how = "no pod of this demand fits"
    free = " ".join(map(str, answer["free"])) or "none"
    lines = [f"free GPUs {free}: worth {answer['value']:g} of {answer['value_of_all']:g} ({how})", ""]
    lines.append(f"{'pod':>4} {'of all':>7}  {'takes':<24}{'GB/s':>8}{'gain':>8}{'loss':>8}{'score':>8}  left")
    for pod in answer["pods"]:
        head = f"{pod['gpus']:>4} {pod['share']:>7.0%}  "
        if pod["takes"] is None:
            lines.append(f"{head}{pod['reason']}")
            continue
        takes = " ".join(map(str, pod["takes"]))
        rate = f"{pod['bandwidth_gb_per_s']:.0f}" if pod["bandwidth_gb_per_s"] else "-"
        lines.append(
            f"{head}{takes:<24}{rate:>8}{pod['gain']:>8.2f}{pod['loss']:>8.2f}{pod['score']:>8.2f}  {pod['sets_left']}"
        )
    lines += [
        "",
        "gain: what the GPUs are worth to the pod itself; loss: what the pods to come lose by it;",
        "left: how many more sets of that size there are.",
        f"score = gain - {answer['foresight']:g} x loss; the node with the highest score comes first.",
    ]
    return "\n".join(lines)


def _sets_left(topology_class: TopologyClass, free: int, size: int) -> int:
    count = 0
    while isinstance(verdict := decide(Situation(topology_class, free), GpuRequest.plain(size)), Placement):
        free &= ~_mask(verdict)
        count += 1
    return count


def _mask(placement: Placement) -> int:
    return sum(1 << position for position in placement.gpus)


def _indexes(node: NodeTopology, mask: int) -> list[int]:
    return [gpu.index for position, gpu in enumerate(node.gpus) if mask >> position & 1]
