"""`kubectl gputopo make-room`: which pods would have to move so that one that waits fits, or its gang. Nothing is moved."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from extender.cluster.objects.budgets import BUDGETS_PATH, PodDisruptionBudget
from extender.cluster.state import ClusterState
from extender.features.moves.events import minutes
from extender.features.moves.job_reads import read_jobs
from extender.features.moves.jobs import Jobs
from extender.features.moves.proposal import MoveProposal, ProposedMove, propose
from extender.features.moves.settings import MovesSettings
from extender.features.queue.waiting import gang_of
from extender.kit.clock import Instant
from extender.kit.yaml_text import read_yaml
from extender.kubectl.form import Form, say
from extender.kubectl.missing import no_pod
from extender.kubectl.options import Name, Namespace
from extender.kubectl.reading import StateSource, ask, fail
from extender.kubectl.snapshot import Snapshot
from extender.kubernetes.documents import decoder
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable, list_objects
from topology.errors import RequestError
from topology.request.words import duration

Wait = Annotated[str, typer.Option(help="How long the pod would wait otherwise, such as 10m; at most one hour counts.")]
Config = Annotated[Path | None, typer.Option(help="The extender's configuration, whose section `moves` counts.")]


def make_room(
    source: StateSource,
    form: Form,
    name: Name,
    wait: Wait = "1h",
    config: Config = None,
    namespace: Namespace = None,
) -> None:
    """Show which pods would move so that a pod fits. Says where to, and at which cost. Nothing is moved."""
    try:
        wait_seconds = duration("--wait", wait)
    except RequestError as error:
        fail(str(error))
    settings = _settings(config)
    source = replace(source, movable=settings.movable.pods)
    within = namespace or source.place.namespace
    state = source.state()
    pod = state.pods.find(within, name) or no_pod(within, name, state, source.resource)
    if not isinstance(source.place, Snapshot):
        ask(_read_budgets(source.place, state))
    gang = gang_of(state, pod, source.now)
    proposal = propose(state, pod, gang, source.now, wait_seconds, jobs := Jobs(), settings)
    if not isinstance(source.place, Snapshot) and ask(_read_jobs(source.place, jobs, source.now)):
        proposal = propose(state, pod, gang, source.now, wait_seconds, jobs, settings)
    _print(proposal, form)
    if proposal.node is None:
        raise typer.Exit(1)


def _settings(file: Path | None) -> MovesSettings:
    if file is None:
        return MovesSettings()
    try:
        document = read_yaml(file.read_text())
        return MovesSettings.model_validate(document.get("moves") or {} if isinstance(document, dict) else document)
    except (OSError, ValueError) as error:
        fail(f"{file}: {error}")


async def _read_budgets(config: Kubeconfig, state: ClusterState) -> None:
    """Read the budgets into the state, if that is allowed."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        try:
            budgets = await list_objects(api.resource(BUDGETS_PATH), decoder(PodDisruptionBudget))
        except Unavailable as error:
            if error.denied:
                return
            raise
    state.budgets.replaced(budgets.objects)


async def _read_jobs(config: Kubeconfig, jobs: Jobs, now: Instant) -> int:
    """Read the Jobs that matter, as far as that is allowed; returns how many were asked for."""
    async with KubeApi.from_kubeconfig(config.files, config.context) as api:
        return await read_jobs(api.send, jobs, now)


def _where(proposal: MoveProposal) -> str:
    """Return the node and the GPUs, or the nodes of a gang, each with its number of pods."""
    if not proposal.gang:
        return f"{proposal.node}, {proposal.part or 'GPUs ' + ', '.join(map(str, proposal.gpus))}"
    pods = Counter(place.node for place in proposal.gang)
    nodes = ", ".join(f"{node} ({count})" for node, count in sorted(pods.items()))
    return f"{nodes} with {len(proposal.gang)} pods of its gang"


def _print(proposal: MoveProposal, form: Form) -> None:
    if form.document(proposal, (f"pod/{move.name}" for move in proposal.moves)):
        return
    who = f"{proposal.namespace}/{proposal.name}"
    if proposal.problem:
        say(f"{who}: {proposal.problem}")
        return
    if proposal.node is None:
        say(f"{who}: no plan: {proposal.movable} pods may move, and they make no room at this cost")
        _say_who_stays(proposal)
        return
    where = _where(proposal)
    if not proposal.moves:
        say(f"{who}: fits on {where}; nobody has to move")
        return
    if not proposal.budgets_known:
        say("PodDisruptionBudgets are not known: the Eviction API may refuse a move", to=sys.stderr)
    say(f"{who}: would fit on {where}, if these pods moved (nothing is moved)", end="\n\n")
    form.table(("POD", "FROM", "GPUS", "TO", "NEW-GPUS", "COST"), map(_row, proposal.moves))
    say()
    say(f"cost {minutes(proposal.cost_gpu_seconds)}, gain at most {minutes(proposal.gain_gpu_seconds)}")
    _say_who_stays(proposal)


def _say_who_stays(proposal: MoveProposal) -> None:
    for staying in proposal.stay:
        say(f"{staying.pods} movable pods stay: {staying.reason}")


def _row(move: ProposedMove) -> tuple[str, ...]:
    old = move.part or ",".join(map(str, move.gpus))
    new = move.to_part or ",".join(map(str, move.to_gpus))
    return f"{move.namespace}/{move.name}", move.node, old, move.to_node, new, minutes(move.cost_gpu_seconds)
