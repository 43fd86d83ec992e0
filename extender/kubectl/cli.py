"""`kubectl gputopo`: show who has which GPUs, and why a pod waits.

With --extender a running extender answers. Otherwise, or if it does not answer, the same code decides from the annotations
alone, with `list` on nodes and pods. It is an estimate: only the extender knows which GPUs it holds for pods being bound.

Exit codes: 0 yes, 1 a clear no (the pod fits nowhere, there is no such node), 2 wrong usage or no cluster.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.drift import drift
from extender.inspect.fragmentation import fragmentation
from extender.inspect.inspection import Explanation, NodeDetail, NodeList
from extender.inspect.pods import pod_list
from extender.inspect.status import status
from extender.inspect.what_if import what_if
from extender.inspect.why import Why, why
from extender.kit import logs
from extender.kit.clock import Instant
from extender.kubectl import extender_client, writing
from extender.kubectl.claim import print_claim
from extender.kubectl.claim_list import list_claims
from extender.kubectl.form import Form, say
from extender.kubectl.help_groups import GroupedCommands
from extender.kubectl.hypothetical import pod_from, pod_of, pods_from, read
from extender.kubectl.job_deadline import with_deadline
from extender.kubectl.make_room import make_room
from extender.kubectl.missing import no_node, no_pod
from extender.kubectl.options import Name, Namespace, Version, Watch, verb
from extender.kubectl.output import (
    print_drift,
    print_fragmentation,
    print_measured,
    print_node,
    print_nodes,
    print_pod,
    print_pods,
    print_replay,
    print_status,
    print_top,
    print_what_if,
    print_why,
)
from extender.kubectl.queue import show_queue
from extender.kubectl.reading import StateSource, ask, fail, kubeconfig, no_answer, read_cluster
from extender.kubectl.replay import NotAdded, add, replay
from extender.kubectl.snapshot import AgentReadings, Snapshot, Unreadable
from extender.kubectl.top import ask_agents, top
from extender.verbs.ranking import NOT_KNOWN
from topology.annotations import keys

Told = TypeVar("Told", Explanation, Why)


LOOK: Final = "Look"
EXPLAIN: Final = "Explain"
CHECK: Final = "Check"
CHANGE: Final = "Change"
"""Headings of the help."""

app = typer.Typer(
    name="kubectl gputopo",
    cls=GroupedCommands,
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(help=__doc__)
def plugin(print_version: Version = False) -> None:
    """Take what stands before the verb."""


@verb(app, LOOK, without=("scheduler_names",))
def nodes(
    source: StateSource,
    form: Form,
    watch: Watch = False,
) -> None:
    """List the nodes with GPUs, and how many are free."""

    def listed(state: ClusterState) -> NodeList:
        return NodeList(nodes=tuple(inspection.nodes(state, inspection.node_names(state), source.now)))

    if watch:
        source.follow(lambda state: print_nodes(listed(state), form), form)
    else:
        print_nodes(source.answer(extender_client.nodes, lambda: listed(source.state())), form)


@verb(app, LOOK, without=("scheduler_names",))
def node(
    source: StateSource,
    form: Form,
    name: Name,
) -> None:
    """Show the links of a node, and who has its GPUs. It also shows the bandwidth of the free ones."""

    def estimate() -> NodeDetail:
        state = source.state()
        return inspection.node(state, name, source.now) or no_node(name, state)

    print_node(source.answer(lambda url: extender_client.node(url, name) or no_node(name, url), estimate), form)


@verb(app, LOOK, without=("scheduler_names", "tolerated_taints"))
def pods(
    source: StateSource,
    form: Form,
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("-A", "--all-namespaces", help="The pods of all namespaces.")] = False,
) -> None:
    """List the pods that request GPUs, and their nodes."""
    within = None if everywhere else namespace or source.place.namespace
    print_pods(
        source.answer(lambda url: extender_client.pods(url, within), lambda: pod_list(source.state(), within)), form
    )


@verb(app, LOOK, without=("tolerated_taints",))
def pod(
    source: StateSource,
    form: Form,
    name: Name,
    watch: Watch = False,
    namespace: Namespace = None,
) -> None:
    """Show the GPUs of a pod, or where it could go. It also says why not elsewhere."""
    within = namespace or source.place.namespace

    def explained(state: ClusterState) -> Explanation:
        explanation = _as_estimate(inspection.explain(state, within, name, source.now), state, source.now)
        return explanation or no_pod(within, name, state, source.resource)

    if watch:
        source.follow(lambda state: print_pod(explained(state), form), form)
        return
    explanation = source.answer(
        lambda url: extender_client.explain(url, within, name) or no_pod(within, name, url, source.resource),
        lambda: explained(source.state()),
    )
    print_pod(explanation, form)
    _end(explanation)


@verb(app, EXPLAIN, "why", without=("tolerated_taints",))
def why_not(
    source: StateSource,
    form: Form,
    name: Name,
    node: Annotated[str, typer.Option("--node", help="This node only, with or without GPUs.")] = "",
    namespace: Namespace = None,
) -> None:
    """Explain for each node why a pod does not fit. Says what would help. For a placed pod, names the nodes that ranked below."""
    within = namespace or source.place.namespace

    def estimate() -> Why:
        state = source.state()
        if node and node not in state.views:
            no_node(node, state)
        answer = why(state, within, name, source.now, node=node, limit=max(1, len(state.views)))
        return _as_estimate(answer, state, source.now) or no_pod(within, name, state, source.resource)

    def answered(url: str) -> Why:
        answer = extender_client.why(url, within, name, node) or no_pod(within, name, url, source.resource)
        is_of_no_node = node and any(verdict.message == NOT_KNOWN.message for verdict in answer.nodes)
        return no_node(node, url) if is_of_no_node else answer

    answer = source.answer(answered, estimate)
    answer = with_deadline(source, answer)
    print_why(answer, form, node)
    _end(answer)


@verb(app, EXPLAIN, "what-if", without=("tolerated_taints",))
def what_would_be(
    source: StateSource,
    form: Form,
    manifest: Annotated[Path | None, typer.Option("-f", "--filename", help="A manifest with a pod, or `-`.")] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Instead of a manifest: a pod with this number of GPUs.")
    ] = None,
    required_affinity: Annotated[
        str | None, typer.Option(help="With --gpus: nvlink, pcie-switch or numa-node.")
    ] = None,
    min_bandwidth: Annotated[str | None, typer.Option(help="With --gpus: GB/s.")] = None,
    gpu_memory_gib: Annotated[int | None, typer.Option(min=1, help="Instead: a pod with a share of a GPU.")] = None,
    sharing_class: Annotated[str | None, typer.Option(help="With --gpu-memory-gib: such as prod.")] = None,
    gpu_model: Annotated[str | None, typer.Option(help="Instead of a manifest's: such as *a100*.")] = None,
    evict: Annotated[
        list[str] | None, typer.Option(help="Assume that this pod, [NAMESPACE/]NAME, is gone; may be repeated.")
    ] = None,
    namespace: Namespace = None,
) -> None:
    """Show where a new pod could go. It also says why not elsewhere. Nothing is written."""
    wants = {
        "required-affinity": required_affinity,
        "min-bandwidth": min_bandwidth,
        "sharing-class": sharing_class,
        "gpu-model": gpu_model,
    }
    amounts = {source.resource: gpus, keys.SHARE_RESOURCE: gpu_memory_gib}
    asks = [(resource, amount) for resource, amount in amounts.items() if amount is not None]
    if len(asks) + (manifest is not None) != 1 or (manifest is not None and any(wants.values())):
        fail("say either -f FILE, or --gpus or --gpu-memory-gib and what else they have to be")
    if sharing_class is not None and gpu_memory_gib is None:
        fail("--sharing-class says nothing without --gpu-memory-gib")
    gone = evict or ()
    # Of pods that are gone only an estimate can be had: the extender knows the cluster as it is.
    source = replace(source, extender=None) if gone else source
    within = namespace or source.place.namespace
    hypothetical = pod_from(manifest, within) if manifest else pod_of(*asks[0], wants, within)
    try:
        body = msgspec.json.encode(hypothetical)
    except TypeError as error:
        fail(f"{manifest}: {error}")
    pod = read(body)

    def estimate() -> Explanation:
        state = source.state({_pod_name(name, within) for name in gone})
        return what_if(state, pod, source.now).model_copy(update={"estimate": True})

    explanation = source.answer(lambda url: extender_client.what_if(url, body), estimate)
    print_what_if(explanation, form)
    _end(explanation)


@verb(app, CHECK, "status")
def show_status(source: StateSource, form: Form) -> None:
    """Show each problem, and what to do about it. Exit 1 if there is one."""
    answer = status(source.state(), source.control_plane())
    print_status(answer, form)
    if answer.findings:
        raise typer.Exit(1)


@verb(app, EXPLAIN, "fragmentation", without=("extender", "scheduler_names"))
def show_fragmentation(source: StateSource, form: Form) -> None:
    """Show how many pods of each size fit now. Says how many would in an empty cluster, and which pods are in the way."""
    answer = fragmentation(source.state())
    print_fragmentation(answer, form)


@verb(app, LOOK, "measured", without=("resource", "scheduler_names", "tolerated_taints"))
def show_measured(source: StateSource, form: Form) -> None:
    """Show measured and predicted bandwidth. The largest difference comes first. Needs --extender."""
    if source.snapshot_file is not None:
        fail(
            f"{source.snapshot_file} does not hold what was measured, as no snapshot does: ask a running extender, "
            "with --extender"
        )
    if source.extender is None:
        fail("say which extender to ask, with --extender or $GPUTOPO_EXTENDER")
    try:
        report = extender_client.measured(source.url())
    except extender_client.ExtenderUnavailable as error:
        fail(no_answer(source.extender, error))
    print_measured(report, form)
    if report.problem or report.refused:
        raise typer.Exit(1)


@verb(app, LOOK, "top", without=("extender", "scheduler_names", "tolerated_taints"))
def show_use(
    source: StateSource,
    form: Form,
    name: Annotated[str, typer.Argument(metavar="[NODE]", help="This node only.")] = "",
    idle: Annotated[bool, typer.Option("--idle", help="Only GPUs that a pod holds and does not use.")] = False,
) -> None:
    """Show the use of each GPU, and who holds it. It reads the agents' metrics. Exit 1 if no agent answers."""
    heard, state = _heard(source, name), source.state()
    names = [node for node in inspection.node_names(state) if name in ("", node)]
    if name and not names:
        no_node(name, state)
    usage = top(inspection.nodes(state, names, source.now), heard, idle=idle)
    print_top(usage, form)
    if names and not heard.told:
        raise typer.Exit(1)


def _heard(source: StateSource, node: str) -> AgentReadings:
    if not isinstance(source.place, Snapshot):
        return ask(ask_agents(source.place, node))
    if source.place.use is None:
        fail(
            f"{source.snapshot_file} does not hold what GPUs do: `kubectl gputopo snapshot --use` writes one that does"
        )
    return source.place.use


@verb(app, CHECK, "drift", without=("extender", "scheduler_names", "tolerated_taints"))
def show_drift(source: StateSource, form: Form) -> None:
    """Show pods whose GPUs differ from the plan. Or from the ledger. Exit 1 if there are any."""
    answer = drift(source.state())
    print_drift(answer, form)
    if answer.differences:
        raise typer.Exit(1)


@verb(
    app,
    CHECK,
    "snapshot",
    without=("output", "no_headers", "snapshot", "resource", "scheduler_names", "tolerated_taints"),
)
def take_snapshot(
    source: StateSource,
    to: Annotated[Path, typer.Argument(metavar="FILE", help="The file, or `-`.")],
    use: Annotated[bool, typer.Option("--use", help="Include the use of GPUs, from the agents, for `top`.")] = False,
) -> None:
    """Write the cluster into a file for --snapshot. The file holds no secrets."""
    place = kubeconfig(source.file, source.context)
    snapshot = replace(ask(read_cluster(place)), control_plane=source.control_plane())
    if use:
        snapshot = replace(snapshot, use=ask(ask_agents(place)))
    try:
        snapshot.write(to)
    except Unreadable as error:
        fail(str(error))
    say(f"{to}: {len(snapshot.nodes)} nodes, {len(snapshot.pods)} pods", to=sys.stderr)


@verb(app, EXPLAIN, "replay", without=("extender", "tolerated_taints"))
def decide_all(
    source: StateSource,
    form: Form,
    manifest: Annotated[
        Path | None, typer.Option("-f", "--filename", help="A manifest whose pods wait as well, or `-`.")
    ] = None,
    namespace: Namespace = None,
) -> None:
    """Show where all waiting pods would go. Places them in turn by GPUs alone; writes nothing. Exit 1 if one still waits."""
    created = pods_from(manifest, namespace or source.place.namespace, source.now.wall) if manifest else ()
    state = source.state()
    try:
        if manifest:
            add(state, created)
    except NotAdded as error:
        fail(f"{manifest}: {error}")
    answer = replay(state, source.now)
    print_replay(answer, form)
    if any(not step.pod.node for step in answer.steps):
        raise typer.Exit(1)


verb(app, LOOK, "claims", without=("extender", "resource", "scheduler_names", "tolerated_taints"))(list_claims)
verb(app, EXPLAIN, "queue", without=("scheduler_names",))(show_queue)
verb(app, EXPLAIN, "make-room", without=("extender", "scheduler_names", "tolerated_taints"))(make_room)
for _write in (writing.cordon_gpu, writing.uncordon_gpu, writing.clear_gpu):
    app.command(rich_help_panel=CHANGE)(_write)
app.command("claim", rich_help_panel=CHANGE)(print_claim)
app.command("cleanup", rich_help_panel=CHANGE)(writing.clean_up)


def main() -> None:
    """Run the command line."""
    logs.start("warning", "text")
    app(prog_name="kubectl gputopo")


def _as_estimate(answer: Told | None, state: ClusterState, now: Instant) -> Told | None:
    """Call what was worked out here an estimate, unless the pod is bound: then it is a fact; with what features say of it."""
    if answer is None:
        return None
    pod = state.pods.find(answer.pod.namespace, answer.pod.name)
    from extender.features.registry import FEATURES  # features bring their settings, which few verbs need

    notes = (kind.note_without(state, pod, now, is_off=False) for kind in FEATURES) if pod else ()
    return answer.model_copy(update={"estimate": answer.pod.node is None, "notes": tuple(filter(None, notes))})


def _pod_name(text: str, namespace: str) -> tuple[str, str]:
    within, slash, name = text.rpartition("/")
    return (within, name) if slash else (namespace, name)


def _end(answer: Explanation | Why) -> None:
    """End with a no where the pod waits in vain: on no node, for no scheduler that asks us, or as a feature says."""
    is_in_vain = answer.scheduler_problem or any(note.is_problem for note in answer.notes)
    if answer.pod.node is None and (is_in_vain or not answer.fits):
        raise typer.Exit(1)
