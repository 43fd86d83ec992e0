"""How the cluster is as a whole, and all that needs somebody: each finding with what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from extender.cluster.candidates.openness import what_opens
from extender.cluster.node_view import NodeView
from extender.cluster.state import ClusterState
from extender.inspect.control_plane import UNKNOWN, ControlPlane, troubles
from extender.inspect.faults import FOREIGN, Faults
from extender.inspect.inspection import Answer, node_names
from extender.inspect.rows import rows
from extender.inspect.words import signs_of
from topology.annotations.overrides import Word
from topology.errors import RequestError
from topology.node.model import NodeTopology

_CONFLICT = "two running pods hold one GPU"
_DISPUTED = "a pod and a ResourceClaim have one GPU"
_ELSEWHERE = "pods hold GPUs that nobody can name: their placement records name none of the node's GPUs"
_CLAIMS_UNREAD = "ResourceClaims are not read, and GPUs that they hold look free"
_NO_AGENT = "no node has a topology: no agent has reported"
_REMEDIES = {
    _CONFLICT: "delete one of the two; `kubectl get events -A --field-selector reason=GPUConflict` names them",
    _ELSEWHERE: "`kubectl gputopo node NODE` names the pods; the agent's next look tells which GPUs, or delete the pods",
    FOREIGN: "end the process on the node, or name its program in discovery.ignoredProcesses",
    _DISPUTED: "delete one of the two; let DRA or a device plugin have the GPUs of a node, and not both",
    _NO_AGENT: "look at the agents' pods",
}
_PODS_BY_OTHERS = "pods with GPUs are placed by other schedulers"
_BY_OTHERS = "set spec.schedulerName (the chart: policies.schedulerName); `--scheduler-name` says which are ours"
_PODS_FOR_OTHERS = "pods with GPUs wait for other schedulers"
_FOR_OTHERS = f"{_BY_OTHERS}; a pod has to be created again"
_TO_BE_UNDERSTOOD = "`kubectl gputopo why POD` says what to correct; the pod has to be made anew"
_NOBODY_PLANS = "pods wait in the queue and nobody plans"
_TO_BE_PLANNED = (
    "enable it (chart: `extender.config.queue.enabled`), or let them go: `kubectl gputopo queue open --all`"
)
_NAMED = 3
"""Pods that a finding names."""
_TO_READ_CLAIMS = (
    "let the account list and watch resourceclaims and resourceslices (chart: `extender.readResourceClaims`)"
)
_OF_A_GPU = "see `kubectl gputopo node NODE`; the page `Handle sick GPUs` says what opens it"
_OF_A_CORDON = "when it may take pods again: `kubectl gputopo uncordon-gpu NODE GPU`"
_NOT_SHOWN = (
    "it cannot be said what is wrong with a node",
    "look at the log for `a row cannot be made`, and report it",
)
_LINKS_DOWN = "NVLinks are down, or not up for long: less bandwidth is predicted"
_OF_LINKS = "see `kubectl gputopo node NODE`; drain the node and reset a GPU whose links stay down"
_OF_OTHERS = "see `kubectl gputopo node NODE`; new pods still go there"
_OF_A_PLUGIN = "look at the log of the node's agent"


class Finding(Answer):
    """Something that is not as it should be."""

    what: str
    remedy: str
    nodes: tuple[str, ...] = ()
    """All where it is so, by name."""


class Status(Answer):
    """The cluster as a whole."""

    nodes: int
    """With a topology."""
    gpus: int
    free: int
    free_set_aside: int
    """GPUs that are free on nodes that are cordoned, or have a taint that not all pods with GPUs tolerate."""
    pods: int
    """That ask for GPUs."""
    waiting: int
    waiting_for_others: int
    """Those of the waiting that name a scheduler which does not ask us."""
    queued: int
    """Pods with the scheduling gate of the queue; they do not count as waiting for a node."""
    placeholders: int
    """That ask autoscalers for a node; they count neither as pods nor as waiting."""
    placed_by_others: int
    """Hold GPUs of these nodes, and their scheduler does not ask us."""
    modes: dict[str, int]
    """Mode of the device plugin → nodes; `unknown` where an agent does not say."""
    agents: dict[str, int]
    """Version of the agent → nodes; `unknown` of agents that do not say."""
    drivers: dict[str, int]
    """Version of the GPU driver → nodes."""
    cuda: dict[str, int]
    """Newest CUDA that the driver takes → nodes."""
    machines: dict[str, int]
    """Models of GPUs → nodes."""
    control_plane: ControlPlane
    findings: tuple[Finding, ...]


def status(
    state: ClusterState,
    plane: ControlPlane = ControlPlane(),  # noqa: B008 - a value
) -> Status:
    """Return how the cluster is, as its annotations tell; linear in nodes and GPUs.

    Args:
        state: The cluster.
        plane: What API server and extender say of themselves.

    """
    views = [state.views[name] for name in node_names(state)]
    with_topology = [view for view in views if view.uuids]
    nodes_by_finding = defaultdict[tuple[str, str], list[str]](list)
    for view in views:
        for what, remedy in dict.fromkeys(rows(view.name, partial(_wrong_with, view), (_NOT_SHOWN,))):
            nodes_by_finding[what, remedy].append(view.name)
    with_gpus = {view.name for view in with_topology}
    by_others = [node for _, node in state.indexes.schedulers.placed_by_others() if node in with_gpus]
    if by_others:
        nodes_by_finding[f"{_PODS_BY_OTHERS}: {len(by_others)}", _BY_OTHERS] = sorted({*by_others})
    schedulers = state.indexes.waiting.schedulers_but(state.indexes.schedulers.ours)
    if for_others := state.indexes.waiting.length(schedulers):
        first = (state.pods.get(uid) for uid in islice(state.indexes.waiting.line(schedulers), _NAMED + 1))
        nodes_by_finding[
            f"{_PODS_FOR_OTHERS}: {for_others} ({_named(['/'.join(pod.key) for pod in first if pod])})", _FOR_OTHERS
        ] = []
    if unread := list(_not_understood(state)):
        nodes_by_finding[
            f"pods that wait and cannot be understood: {len(unread)} ({_named(unread)})", _TO_BE_UNDERSTOOD
        ] = []
    queued = state.indexes.gates.queued
    if queued and plane.planners is not None and not plane.at_work:
        names = ["/".join(pod.key) for pod in islice(queued.values(), _NAMED + 1)]
        nodes_by_finding[f"{_NOBODY_PLANS}: {len(queued)} ({_named(names)})", _TO_BE_PLANNED] = []
    if trouble := state.claims.trouble:
        nodes_by_finding[f"{_CLAIMS_UNREAD}: {trouble}", _TO_READ_CLAIMS] = []
    if not with_topology:
        nodes_by_finding[_NO_AGENT, _REMEDIES[_NO_AGENT]] = []
    agents = {view.name: _agent(view) for view in with_topology}
    who_say = {view.name: agents[view.name] for view in with_topology if view.payloads.status.value}
    nodes_by_finding |= {(what, remedy): on for what, remedy, on in troubles(plane, who_say)}
    ranked = sorted(nodes_by_finding.items(), key=lambda item: (-len(item[1]), item[0]))
    return Status(
        nodes=len(with_topology),
        gpus=sum(len(view.uuids) for view in with_topology),
        free=sum(view.shape.free_gpus.bit_count() for view in with_topology if view.is_open),
        free_set_aside=sum(view.shape.free_gpus.bit_count() for view in with_topology if not view.is_open),
        pods=len(state.pods) - len(state.indexes.stand_ins),
        waiting=state.pods.waiting - len(state.indexes.stand_ins),
        waiting_for_others=for_others,
        queued=len(queued),
        placeholders=len(state.indexes.stand_ins),
        placed_by_others=len(by_others),
        modes=_counted(map(_mode, with_topology)),
        agents=_counted(agents.values()),
        drivers=_counted((node and node.driver_version) or UNKNOWN for node in map(_topology, with_topology)),
        cuda=_counted((node and node.cuda_version) or UNKNOWN for node in map(_topology, with_topology)),
        machines=_counted(map(_models, with_topology)),
        control_plane=plane,
        findings=tuple(Finding(what=what, remedy=remedy, nodes=tuple(on)) for (what, remedy), on in ranked),
    )


def _named(pods: Sequence[str]) -> str:
    return ", ".join(pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")


def _not_understood(state: ClusterState) -> Iterator[str]:
    """Yield the waiting pods of which an annotation, or a number of GPUs, cannot be read; no node will ever do for them."""
    for pod in sorted(state.pods, key=lambda pod: pod.key):
        if pod.node is None and not pod.ended and pod.uid not in state.indexes.stand_ins:
            try:
                state.request_of(pod.pod)
            except RequestError:
                yield "/".join(pod.key)


def _wrong_with(view: NodeView) -> Iterator[tuple[str, str]]:
    if closed := view.shape.closed:
        yield f"no GPU is given away: {closed}", what_opens(closed)
    for sign in signs_of(view):
        if not sign.closes:
            yield f"another health agent says: {sign.kind} {sign.name}={sign.value}", _OF_OTHERS
    yield from ((what, _REMEDIES[what]) for what in _wrong_with_holders(view))
    plugin = view.payloads.device_plugin
    if plugin and not plugin.ready and not view.by_claim:
        yield f"the device plugin is not ready: {'; '.join(plugin.reasons) or 'no reason given'}", _OF_A_PLUGIN
    if view.payloads.status.value and view.payloads.status.value.link_faults:
        yield _LINKS_DOWN, _OF_LINKS
    unhealthy = view.payloads.status.value.unhealthy if view.payloads.status.value else frozenset()
    faults = Faults(view)
    for position, uuid in enumerate(view.uuids):
        for reason in faults.of(position):
            if reason == FOREIGN:
                yield FOREIGN, _REMEDIES[FOREIGN]
            elif uuid in unhealthy and reason != closed:
                yield (
                    f"a GPU takes no new pods: {reason}",
                    _OF_A_CORDON if reason.startswith(Word.CORDONED) else _OF_A_GPU,
                )


def _wrong_with_holders(view: NodeView) -> Iterator[str]:
    if view.conflicts:
        yield _CONFLICT
    if any(held.is_elsewhere and held.hidden for held in view.holdings):
        yield _ELSEWHERE
    if view.disputed:
        yield _DISPUTED


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _mode(view: NodeView) -> str:
    return view.payloads.device_plugin.mode.value if view.payloads.device_plugin else UNKNOWN


def _agent(view: NodeView) -> str:
    agent_status = view.payloads.status.value
    return (agent_status and agent_status.agent_version) or UNKNOWN


def _topology(view: NodeView) -> NodeTopology | None:
    return view.shape.topology_class.node if view.shape.topology_class else None


def _models(view: NodeView) -> str:
    node = _topology(view)
    gpus = node.gpus if node else ()
    return ", ".join(f"{count} {model}" for model, count in sorted(Counter(gpu.model for gpu in gpus).items()))
