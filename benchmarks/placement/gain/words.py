"""The answer in words: what people read first, in Markdown, for a terminal and for a page alike."""

from __future__ import annotations

from benchmarks.placement.gain.answer import NAMES, OBSERVE, STOCK, Gain, GainMeasurement, Measure
from benchmarks.placement.policies import PRODUCT
from benchmarks.placement.report.tables import table

TITLE = "What would gputopo change on this cluster?"
RULE_OF_GPUS = (
    "With kube-scheduler and in mode observe NVIDIA's device plugin chooses the GPUs. The kubelet offers it the free ones in "
    "random order, and so does this comparison. The other policies impose the GPUs that they chose."
)
DIGITS = 1
MISSING = "–"
_UNITS = {
    Measure.BANDWIDTH: ("points more", "points less"),
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
            "write the column `topology` of `node_list.csv`."
        )
    elif subject.wired_nodes < subject.nodes:
        limits.append(
            f"Of {subject.nodes - subject.wired_nodes} of {subject.nodes} nodes nobody knows the wires. They count as "
            "machines without NVLink."
        )
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
            "Bandwidth is gputopo's own prediction, the same for all policies, over that of the best set in the empty cluster. "
            "All pods that found a place count, until 130 % of the GPUs were asked for."
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
        why = "no pod asks for several" if not answer.subject.pods_of_several else "the wires are not known"
        return f"**Bandwidth between GPUs**: not measured, {why}."
    had = f"{gain.ours:.{DIGITS}f}, and {gain.theirs:.{DIGITS}f} with {NAMES[STOCK]}"
    subject = {
        Measure.BANDWIDTH: f"**Bandwidth** of pods of several GPUs, in percent of the best there is: {had}",
        Measure.PODS: f"**Pods that fit**, of {answer.arrived:.{DIGITS}f}: {had}",
        Measure.STRANDED: f"**GPUs stranded**, of {answer.subject.gpus}: {had}",
    }[measure]
    return f"{subject}. {_difference(answer, gain)}"


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
