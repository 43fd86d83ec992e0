"""The answer in words: what people read first, in Markdown, for a terminal and for a page alike."""

from __future__ import annotations

from benchmarks.placement.gain.answer import (
    MOST_ALLOCATED,
    MOVED_MINUTES,
    NAMES,
    OBSERVE,
    STOCK,
    Gain,
    GainMeasurement,
    Measure,
)
from benchmarks.placement.gain.subject import UnwiredNodes
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.tables import table
from benchmarks.placement.traces.node_types import Assumption

TITLE = "What would gputopo change on this cluster?"
RULE_OF_GPUS = (
    "With kube-scheduler and in mode observe NVIDIA's device plugin chooses the GPUs. The kubelet offers it the free ones in "
    "random order, and so does this comparison. The other policies impose the GPUs that they chose."
)
DIGITS = 1
MISSING = "–"
UNIFORM_PCT = 99.95
"""From here on all sets of a node count as equally fast."""
INSTALLED = {
    OBSERVE: "agents and the extender, mode observe; NVIDIA's device plugin stays",
    PRODUCT: "the same in mode enforce: gputopo's device plugin instead of NVIDIA's",
}
_SHORT_UNITS = {Measure.GB_PER_S: "GB/s", Measure.BANDWIDTH: "% of their node's best"}
_UNITS = {
    Measure.BANDWIDTH: ("points more", "points less"),
    Measure.GB_PER_S: ("GB/s more", "GB/s less"),
    Measure.PODS: ("more", "fewer"),
    Measure.STRANDED: ("fewer", "more"),
}


def what_was_asked(answer: GainMeasurement) -> list[str]:
    """Return what the cluster is, and what was done with it."""
    subject = answer.subject
    return [
        f"# {TITLE}",
        (
            f"`{_quoted(subject.name)}`: {subject.nodes} nodes, {subject.gpus} GPUs, {subject.pods} pods that ask for GPUs, "
            f"{subject.pods_of_several} of them for two or more."
        ),
        (
            "Pods like these arrive at the empty cluster in random order. They are counted when they have asked for as many "
            f"GPUs as there are, at about {answer.arrived:.0f} pods. Each policy places the same pods. This was done "
            f"{_times(answer.seeds)}."
        ),
    ]


def verdict(answer: GainMeasurement) -> str:
    """Return the answer in two sentences: what changes in bandwidth, and in packing."""
    return f"{_bandwidth_in_short(answer)} {_packing_in_short(answer)}".rstrip()


def what_moving_brings(answer: GainMeasurement) -> list[str]:
    """Return what it would bring and cost to move running pods, nothing where that was not measured."""
    moves = answer.moves()
    if moves is None:
        return []
    if not moves.moved:
        return ["If running pods could move, up to two for one that finds no place, none would."]
    pods = moves.more_pods
    return [
        (
            f"If running pods could move, up to two for one that finds no place, {pods.ours:.{DIGITS}f} pods would fit, and "
            f"{pods.theirs:.{DIGITS}f} without. {_difference(answer, pods)} "
            f"{moves.moved:.{DIGITS}f} pods would move, which costs {moves.cost_gpu_h:.{DIGITS}f} GPU-hours if each does "
            f"{MOVED_MINUTES} minutes of its work again."
        )
    ]


def _bandwidth_in_short(answer: GainMeasurement) -> str:
    share = answer.gain(Measure.BANDWIDTH, PRODUCT, STOCK)
    speed = answer.gain(Measure.GB_PER_S, PRODUCT, STOCK)
    if share is None or speed is None:
        return f"Nothing is known of the gain in bandwidth: {_why_not_measured(answer)}."
    is_best = min(share.ours, share.theirs) >= UNIFORM_PCT
    certain = [gain for gain in (speed, share) if gain.is_certain and not (is_best and gain is share)]
    if not certain and is_best and answer.subject.is_uniform:
        return "Your fleet is uniform: any GPUs of a node are as fast as any others, so there is no gain in bandwidth."
    if not certain and is_best:
        return "No gain in bandwidth: pods like yours get the best of their node from kube-scheduler, too."
    if not certain:
        return f"{_runs(answer.seeds).capitalize()} showed no certain gain in bandwidth."
    had = " and ".join(
        f"{gain.ours:.{DIGITS}f} instead of {gain.theirs:.{DIGITS}f} {_SHORT_UNITS[gain.measure]}" for gain in certain
    )
    return f"Pods of several GPUs get {had}."


def _packing_in_short(answer: GainMeasurement) -> str:
    rival = "kube-scheduler's MostAllocated"
    gain = answer.gain(Measure.PODS, PRODUCT, MOST_ALLOCATED)
    if gain is None:
        return ""
    if not gain.is_certain:
        return f"{_runs(answer.seeds).capitalize()} showed no difference in packing from {rival}."
    more, less = _UNITS[Measure.PODS]
    size = abs(gain.better_by.mean)
    return f"{size:.{DIGITS}f} {more if gain.better_by.mean > 0 else less} pods fit than with {rival}."


def what_to_install(answer: GainMeasurement) -> list[str]:
    """Return a table: what each part of the gain needs."""
    measures = [measure for measure in Measure if answer.gain(measure, PRODUCT, STOCK)]
    lines = []
    for mode, needs in INSTALLED.items():
        if mode in answer.policies:
            gains = [answer.gain(measure, mode, STOCK) for measure in measures]
            lines.append([needs, *(_by_how_much(gain) if gain else MISSING for gain in gains)])
    head = ["installed", *(measure.value for measure in measures)]
    return ["## What each part of the gain needs", f"Differences from {NAMES[STOCK]}.", table(head, lines)]


def _by_how_much(gain: Gain) -> str:
    more, less = _UNITS[gain.measure]
    return f"{abs(gain.better_by.mean):.{DIGITS}f} {more if gain.better_by.mean >= 0 else less}"


def in_short(answer: GainMeasurement) -> list[str]:
    """Return a sentence for each measure and mode of the product: what it gains over the stock scheduler."""
    parts = []
    for mode, about in (
        (PRODUCT, "In mode enforce the container gets the GPUs that gputopo chose."),
        (
            OBSERVE,
            "In mode observe, the default, NVIDIA's device plugin chooses the GPUs on the node that gputopo chose.",
        ),
    ):
        if mode in answer.policies:
            said = [f"- {_sentence(answer, measure, answer.gain(measure, mode, STOCK))}" for measure in Measure]
            parts += [f"## {_capital(NAMES[mode])}, beside {NAMES[STOCK]}", about, "\n".join(said)]
    return parts


def all_figures(answer: GainMeasurement) -> list[str]:
    """Return a table of all policies, and whether one of them does better than the product."""
    lines = []
    for policy in answer.policies:
        found = (answer.measured(measure, policy) for measure in Measure)
        lines.append([NAMES[policy], *(each.text(DIGITS) if each else MISSING for each in found)])
    best = [f"- {said}" for measure in Measure if (said := _beside_the_best(answer, measure))]
    return [
        "## All policies",
        RULE_OF_GPUS,
        table(["policy", *(measure.value for measure in Measure)], lines),
        *(["Beside the best of the others, in mode enforce:", "\n".join(best)] if best else []),
    ]


def what_it_does_not_say(answer: GainMeasurement, quick: str = "") -> list[str]:
    """Return the limits of the answer, those of this cluster first."""
    subject = answer.subject
    limits = [quick] if quick else []
    if not subject.wired_nodes:
        limits.append(
            "Nothing is known of how these GPUs are wired, so nothing is said of bandwidth. Let the agents run first, or "
            "name the node types with `--node-type`."
        )
    limits += [_unwired(unwired) for unwired in subject.unwired]
    limits += [_assumption(assumption) for assumption in subject.assumptions]
    if OBSERVE not in answer.policies:
        limits.append(
            "Some pods share a GPU. Mode observe is left out, since NVIDIA's device plugin hands out whole GPUs."
        )
    if answer.fits_nowhere:
        limits.append(
            f"Up to {answer.fits_nowhere} of the pods fit on no node, even an empty one. No policy helps them."
        )
    limits += [
        (
            "Bandwidth is gputopo's own prediction, the same for all policies. The best of a node is that of its best set of as "
            "many GPUs when it is empty. All pods that found a place count, until 130 % of the GPUs were asked for."
        ),
        "Bandwidth is not run time: a job that hardly communicates gains little.",
        (
            "Stranded GPUs are idle ones that the next pod could not use, on average over the kinds of pods here: FGD's measure "
            "(ATC'23)."
        ),
        (
            "Pods come and never leave, and none waits. A snapshot tells what pods ask for, not how long they run: it says "
            "nothing of waiting times."
        ),
        "Affinity, taints, quotas and priorities are left out, and every pod of several GPUs counts as one that communicates.",
        "± is half a 95 % interval over the orders of arrival. It does not tell how far tomorrow's pods differ from these.",
    ]
    return ["## What this does not say", "\n".join(f"- {limit}" for limit in limits)]


def _sentence(answer: GainMeasurement, measure: Measure, gain: Gain | None) -> str:
    if gain is None:
        return f"**{_capital(measure.value)}**: not measured, {_why_not_measured(answer)}."
    had = f"{gain.ours:.{DIGITS}f}, and {gain.theirs:.{DIGITS}f} with {NAMES[STOCK]}"
    subject = {
        Measure.BANDWIDTH: f"**Bandwidth** of pods of several GPUs, in percent of the best of their node: {had}",
        Measure.GB_PER_S: f"**Bandwidth** of pods of several GPUs, in GB/s: {had}",
        Measure.PODS: f"**Pods that fit**, of {answer.arrived:.{DIGITS}f}: {had}",
        Measure.STRANDED: f"**GPUs stranded**, of {answer.subject.gpus}: {had}",
    }[measure]
    return f"{subject}. {_difference(answer, gain)}"


def _why_not_measured(answer: GainMeasurement) -> str:
    return "the wires are not known" if answer.subject.pods_of_several else "no pod requests several GPUs"


def _assumption(assumption: Assumption) -> str:
    how = "a guess from product and number" if assumption.is_guess else "as given"
    return (
        f"{_quoted(assumption.subject)} count as `{_quoted(assumption.node_type)}`: {how}. "
        "Other wiring gives other figures; `--node-type` names it."
    )


def _unwired(unwired: UnwiredNodes) -> str:
    nodes = _quoted(unwired.kind.of_nodes(unwired.nodes))
    said = f"No NVLink is assumed on {nodes}: how these GPUs are linked is not known."
    product = _quoted(unwired.kind.product)
    if not product:
        return said
    return (
        f"{said} Name a node type with `--node-type '{product}=NODE_TYPE'`: a name of `gputopo-bench list`, or a file with the "
        "output of `nvidia-smi topo -m`."
    )


def _runs(seeds: int) -> str:
    return "one run" if seeds == 1 else f"{seeds} runs"


def _beside_the_best(answer: GainMeasurement, measure: Measure) -> str:
    best = answer.best_of_others(measure)
    gain = answer.gain(measure, PRODUCT, best) if best else None
    if best is None or gain is None:
        return ""
    return f"{_capital(measure.value)}: {NAMES[best]} has {gain.theirs:.{DIGITS}f}. {_difference(answer, gain)}"


def _difference(answer: GainMeasurement, gain: Gain) -> str:
    """Return the difference in words; what the runs cannot tell from nothing is not called a gain."""
    better = gain.better_by
    more, less = _UNITS[gain.measure]
    direction = more if better.mean >= 0 else less
    if answer.seeds == 1:
        return f"One run: {abs(better.mean):.{DIGITS}f} {direction}, and nothing tells how sure that is."
    if not better.mean and not better.half_width:
        return "The same in every run."
    if not better.half_width:
        return f"That is {'' if better.mean > 0 else 'worse: '}**{abs(better.mean):.{DIGITS}f} {direction}**, in every run."
    size = f"{abs(better.mean):.{DIGITS}f} ± {better.half_width:.{DIGITS}f} {direction}"
    if not gain.is_certain:
        return f"No difference that {answer.seeds} runs can tell ({size})."
    return f"That is **{size}**." if better.mean > 0 else f"That is worse: **{size}**."


def _times(seeds: int) -> str:
    return "once" if seeds == 1 else f"{seeds} times"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] if not text.startswith(PRODUCT) else text


def _quoted(name: str) -> str:
    """Return a name that ends no quotation and begins no block."""
    return name.replace("`", "'")
