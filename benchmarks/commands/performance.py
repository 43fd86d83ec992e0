"""`latency`, `scheduler`, `state` and `curves`: what the extender costs; `monitoring`: what the agent does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.commands.answers import AnswerFormat, OutputOption, refuse, reply

Candidates = Annotated[
    int, typer.Option("--candidates", min=0, help="How many nodes filter passes on; 0: all that fit.")
]


def latency(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Simulated nodes.")] = 5000,
    pods: Annotated[int, typer.Option("--pods", min=1, help="Scheduled one after another.")] = 2000,
    candidates: Candidates = 16,
    binds_at_once: Annotated[
        int, typer.Option("--binds-at-once", min=0, help="Binds of a burst at the end; 0: no burst.")
    ] = 30,
    shared: Annotated[
        bool, typer.Option("--shared", help="Measure filter also where pods share GPUs of half of the nodes.")
    ] = False,
    gpushare: Annotated[
        Path | None, typer.Option("--gpushare", help="The program of gpushare-scheduler-extender, a peer in Go.")
    ] = None,
    worst: Annotated[
        bool, typer.Option("--worst", help="Measure also nodes that all differ, and nodes of random shapes.")
    ] = False,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Measure the verbs over HTTP. A handler that only echoes the names is measured, too."""
    from benchmarks.performance.latency import LatencyLoad, as_text, measure
    from benchmarks.processes.process import NotReady
    from benchmarks.simulated.fleet import TooFewGpus

    if gpushare and not gpushare.is_file():
        refuse(f"{gpushare}: no such program")
    try:
        found = measure(LatencyLoad(nodes, pods, candidates, binds_at_once, shared, gpushare, worst))
    except (NotReady, TooFewGpus) as wrong:
        refuse(str(wrong))
    reply(output, found, as_text(found))


def scheduler(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Simulated nodes.")] = 1000,
    pods: Annotated[int, typer.Option("--pods", min=2, help="Waiting when the scheduler starts.")] = 300,
    percentage: Annotated[
        int, typer.Option("--percentage-of-nodes-to-score", min=0, max=100, help="0: kube-scheduler's own choice.")
    ] = 100,
    candidates: Candidates = 16,
    burst: Annotated[
        bool, typer.Option("--burst", help="Create the pods while the scheduler runs, and not before it starts.")
    ] = False,
    storm: Annotated[
        bool, typer.Option("--storm", help="Ours alone, without and with 50 pods that it rejects again and again.")
    ] = False,
    gangs: Annotated[
        bool, typer.Option("--gangs", help="A burst beside ten PodGroups that are refused by count, or by our filter.")
    ] = False,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="A burst through kube-scheduler alone, and through the queue in front of it."),
    ] = False,
    waiting: Annotated[
        int,
        typer.Option(
            "--waiting", min=0, help="With --queue: the same without and with so many pods of another tenant."
        ),
    ] = 0,
    per_second: Annotated[
        float, typer.Option("--per-second", min=0, help="With --queue: pods created in a second; 0: all at once.")
    ] = 0,
    dra: Annotated[
        bool,
        typer.Option("--dra", help="A burst of ResourceClaims: allocated by kube-scheduler, and by our planner."),
    ] = False,
    start_gangs: Annotated[
        str | None,
        typer.Option(
            "--start-gangs", help="Gangs per second, by core and by the queue. 4x750: 750 gangs of four pods."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often everything is measured.")] = 1,
    kube_bin: Annotated[
        Path | None,
        typer.Option(
            "--kube-bin", envvar="GPUTOPO_KUBE_BIN", help="Folder with etcd, kube-apiserver and kube-scheduler."
        ),
    ] = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Measure a real scheduler's pods per second. It asks our extender, another, or none."""
    from benchmarks.performance import dra_burst, gang_starts, queue_burst, throughput, waiting_gangs
    from benchmarks.performance.burst import Stalled
    from benchmarks.processes.kube_binaries import BinariesMissing, find_binaries
    from benchmarks.processes.process import NotReady
    from benchmarks.simulated.fleet import TooFewGpus

    alone = {"--gangs": gangs, "--queue": queue, "--dra": dra, "--start-gangs": start_gangs is not None}
    chosen = [option for option, is_chosen in {**alone, "--burst": burst, "--storm": storm}.items() if is_chosen]
    if len(chosen) > 1 and chosen[0] in alone:
        refuse(f"{chosen[0]}: not with {chosen[1]}")
    if (waiting or per_second) and not queue:
        refuse(f"{'--waiting' if waiting else '--per-second'} needs --queue")
    try:
        binaries = find_binaries(kube_bin)
        if start_gangs is not None:
            measured = gang_starts.measure(nodes, gang_starts.GangShape.parse(start_gangs), rounds, binaries)
            text = gang_starts.as_text(measured)
        elif gangs:
            gangs_load = waiting_gangs.GangsLoad(nodes, pods, candidates, percentage)
            measured = waiting_gangs.measure(gangs_load, rounds, binaries)
            text = waiting_gangs.as_text(measured)
        elif queue:
            queue_load = queue_burst.QueueBurstLoad(nodes, pods, waiting, per_second)
            measured = queue_burst.measure(queue_load, rounds, binaries)
            text = queue_burst.as_text(measured)
        elif dra:
            measured = dra_burst.measure(nodes, pods, rounds, binaries)
            text = dra_burst.as_text(measured)
        else:
            load = throughput.ThroughputLoad(nodes, pods, candidates, percentage, burst)
            measured = throughput.measure(load, rounds, binaries, throughput.IN_A_STORM if storm else None)
            text = throughput.as_text(measured)
    except (
        BinariesMissing,
        NotReady,
        Stalled,
        TooFewGpus,
        gang_starts.BadShape,
        waiting_gangs.WithoutPodGroups,
    ) as wrong:
        refuse(str(wrong))
    reply(output, measured, text)


def state(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Simulated nodes.")] = 5000,
    pods: Annotated[int, typer.Option("--pods", min=0, help="Running already, on all nodes together.")] = 50_000,
    events: Annotated[
        int, typer.Option("--events", min=0, help="Of a burst of changes, once it is ready; 0: no burst.")
    ] = 50_000,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long the burst takes.")] = 10,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Measure the extender's start and memory. It also measures a burst of events."""
    from benchmarks.performance.state import as_text, measure
    from benchmarks.processes.process import NotReady

    try:
        found = measure(nodes, pods, events, seconds)
    except NotReady as wrong:
        refuse(str(wrong))
    reply(output, found, as_text(found))


def curves(
    of: Annotated[
        str | None, typer.Option("--of", help="One of nodes, pods, kinds, gpus, waiting; all without it.")
    ] = None,
    points: Annotated[
        str | None, typer.Option("--points", help="Where it is measured, rising: 1000,5000. Needs --of.")
    ] = None,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Measure how the extender's cost grows. It varies nodes, pods, node types, GPUs of a node, and waiting pods."""
    from benchmarks.performance.curves import POINTS, GrowthAxis, as_text, measure
    from benchmarks.processes.process import NotReady

    try:
        asked = {GrowthAxis(of): POINTS[GrowthAxis(of)]} if of else POINTS
        if points:
            if not of:
                refuse("--points needs --of")
            asked = {GrowthAxis(of): tuple(sorted({int(point) for point in points.split(",")}))}
        if any(place < 1 for places in asked.values() for place in places):
            refuse("--points: whole numbers from 1 on")
    except ValueError as wrong:
        refuse(str(wrong))
    try:
        found = measure(asked)
    except NotReady as wrong:
        refuse(str(wrong))
    reply(output, found, as_text(found))


def monitoring(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long CPU is counted.")] = 300,
    scrapes: Annotated[int, typer.Option("--scrapes", min=1, help="How many are timed, one a second.")] = 60,
    output: OutputOption = AnswerFormat.TEXT,
) -> None:
    """Measure what sampling costs a node. The agent samples the GPUs of this machine and is scraped."""
    from benchmarks.performance.monitoring import NothingSampled, as_text, measure
    from benchmarks.processes.process import NotReady

    try:
        found = measure(seconds, scrapes)
    except (NotReady, NothingSampled) as wrong:
        refuse(str(wrong))
    reply(output, found, as_text(found))
