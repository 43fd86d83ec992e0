"""What explain says, filter answers, prioritize ranks first and bind takes are one decision."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from extender.binding.bind import bind
from extender.binding.intents import Done, FencePod, GetPod, Intent, SwapLedger
from extender.binding.outcome import BindTarget
from extender.cluster.candidates.holds import Hold
from extender.cluster.objects.gpu_pods import read_request
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import PAIRS, args, at, claim, cluster, gpus, node, pod, running
from tests.extender.shares import share, sharer
from topology.annotations import keys
from topology.annotations.records import decode_ledger
from topology.annotations.status_codec import encode_status
from topology.node.sharing import Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.value.fragmentation import PodKind

RACK_LABEL = "topology.kubernetes.io/rack"
SIZES = {PAIRS: 8, "v100-sxm2-4": 4, "rtx-3090-2": 2, "hgx-h100": 8, "dgx-a100": 8}
PODS_TO_COME = [(PodKind(1, cpu_milli=4_000), 0.6), (PodKind(4, cpu_milli=32_000), 0.4)]


@dataclass(frozen=True)
class Drawn:
    """One node and what has become of its GPUs."""

    machine: str
    mode: Mode | None
    used: frozenset[int]
    """By a pod that runs there."""
    own: frozenset[int]
    """Claimed for the pod that is asked about, which is not bound yet."""
    held: frozenset[int]
    """Kept for another pod."""
    doubtful: frozenset[int]
    """In whatever hand."""
    strays: int
    """GPUs of a pod that was bound around us; nobody knows which."""
    cores: int
    rack: str
    has_sibling: bool
    """The pod that runs there is of the asked pod's group."""
    shared: frozenset[int]
    """Other pods have shares of them."""
    max_gpus: int
    """Of the node may be shared."""

    def parts(self, name: str, *, is_share: bool) -> list[Node | Pod]:
        """Return the node and its pods; the asked pod's own claims are shares where it asks for one."""
        taken = sorted(self.used)
        uuids = gpus(name, *taken, machine_name=self.machine)
        mine = gpus(name, *sorted(self.own), machine_name=self.machine)
        shared = gpus(name, *sorted(self.shared), machine_name=self.machine)
        claims = (
            *(claim(gpu, f"on-{name}") for gpu in uuids),
            *(replace(claim(gpu, "p"), memory_gib=10 if is_share else None) for gpu in mine),
            *(
                share(gpu, f"on-{name}-{number}", 6, "dev" if number % 3 == 2 else "")
                for number, gpu in enumerate(shared)
            ),
        )
        every = gpus(name, *range(SIZES[self.machine]), machine_name=self.machine)
        doubtful = gpus(name, *sorted(self.doubtful), machine_name=self.machine)
        sharing = Sharing(self.max_gpus) if self.max_gpus else None
        status = NodeGpuStatus(
            1,
            tuple(GpuStatus(gpu, doubtful=gpu in doubtful, share_gib=22) for gpu in every),
            device_plugin=DevicePluginStatus(self.mode, ready=True, sharing=sharing) if self.mode else None,
        )
        labels, cpu = ({RACK_LABEL: self.rack} if self.rack else {}), str(self.cores) if self.cores else ""
        found: list[Node | Pod] = [
            node(name, self.machine, claims=claims, labels=labels, cpu=cpu, status=encode_status(status))
        ]
        if uuids:
            wants = GROUP if self.has_sibling else None
            owner = f"on-{name}"
            found.append(
                pod(owner, len(uuids), on=name, placed=uuids, phase="Running", terminated=False, wants=wants)
                if wants
                else running(owner, name, *uuids)
            )
        if self.strays:
            found.append(pod(f"stray-{name}", self.strays, on=name, phase="Running"))
        return found


GROUP = {keys.GROUP: "llama", keys.GROUP_SIZE: "3"}


@st.composite
def nodes(draw: st.DrawFn) -> Drawn:
    """Draw one node; each GPU is in one hand."""
    machine = draw(st.sampled_from([*SIZES]))
    hands = draw(st.lists(st.sampled_from("ffffuuhoss"), min_size=SIZES[machine], max_size=SIZES[machine]))
    of = {hand: frozenset(at for at, held in enumerate(hands) if held == hand) for hand in "uhos"}
    return Drawn(
        machine,
        draw(st.sampled_from([None, Mode.ENFORCE, Mode.OBSERVE])),
        of["u"],
        of["o"] if draw(st.integers(0, 3)) == 0 else frozenset(),
        of["h"],
        draw(st.frozensets(st.integers(0, SIZES[machine] - 1), max_size=3)),
        draw(st.sampled_from([0, 0, 0, 1])),
        draw(st.sampled_from([0, 16, 64])),
        draw(st.sampled_from(["", "a", "b"])),
        draw(st.booleans()),
        of["s"],
        draw(st.sampled_from([0, 1, 3, 8])),
    )


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Draw the pod that is asked about."""
    wants = draw(
        st.sampled_from(
            [
                {},
                {},
                {keys.REQUIRED_AFFINITY: "nvlink"},
                {keys.PREFERRED_AFFINITY: "pcie-switch"},
                {keys.COMMUNICATION: "none"},
                {keys.COMMUNICATION: "light"},
                {keys.MIN_BANDWIDTH: "20"},
            ]
        )
    )
    if draw(st.integers(0, 2)) == 0:
        asked: list[int | dict[str, int]] = [5, 10, 20, {"a": 10, "b": 10}, {"a": 12, "b": 12}]
        gib = draw(st.sampled_from(asked))
        same = draw(st.sampled_from(["preferred", "never"]))
        return sharer("p", gib, sharing_class=draw(st.sampled_from(["", "dev"])), wants={keys.SAME_GPU: same})
    group = draw(st.sampled_from([{}, {}, GROUP, {**GROUP, keys.GROUP_AFFINITY: "required-rack"}]))
    cpu = draw(st.sampled_from(["", "8"]))
    return pod("p", draw(st.sampled_from([1, 2, 2, 3, 4, 4, 8])), wants={**wants, **group}, cpu=cpu)


def built(drawn: dict[str, Drawn], asked: Pod) -> ClusterState:
    """Return the cluster; each node's held GPUs are for a pod of their own."""
    is_share = read_request(asked).request.is_share
    state = cluster(asked, *(part for name, each in drawn.items() for part in each.parts(name, is_share=is_share)))
    state.shapes.forget_verdicts(PODS_TO_COME)
    for name, each in drawn.items():
        if each.held:
            state.holds.put(f"other-{name}", Hold(name, sum(1 << position for position in each.held), expires=60.0))
    return state


def written(state: ClusterState, intent: Intent) -> Node:
    """Return the node with the ledger that bind asks for."""
    assert isinstance(intent, SwapLedger)
    before = state.views[intent.node].node
    annotations = {**(before.metadata.annotations or {}), keys.LEDGER: intent.ledger}
    metadata = structs.replace(before.metadata, annotations=annotations, resource_version="2")
    return structs.replace(before, metadata=metadata)


def taken_by_bind(state: ClusterState, asked: Pod, name: str) -> frozenset[str] | None:
    """Return the GPUs that bind claims for the pod, `None` where it finds that nothing fits.

    Claims on other nodes are dropped first, as bind asks for it; the claims themselves are not written.
    """
    steps = bind(state, BindTarget("ml", "p", "p", name), at, deadline=30.0)
    try:
        intent = next(steps)
        while not isinstance(intent, SwapLedger) or intent.node != name:
            intent = steps.send(Done(asked if isinstance(intent, GetPod | FencePod) else written(state, intent)))
    except StopIteration:
        return None
    steps.close()
    return frozenset(found.gpu for found in decode_ledger(intent.ledger).claims if found.uid == "p")


def sharing(used: range, shared: frozenset[int], max_gpus: int) -> Drawn:
    """Return a node of eight GPUs with CPU for two pods."""
    nothing = frozenset[int]()
    return Drawn(
        "a100-pcie-8-pairs",
        Mode.ENFORCE,
        frozenset(used),
        nothing,
        nothing,
        nothing,
        0,
        16,
        "",
        False,
        shared,
        max_gpus,
    )


NOT_FORETOLD = [sharing(range(3, 8), frozenset(), 1), sharing(range(3, 7), frozenset({7}), 3)]
"""Two nodes for a share: what is said of the second one holds where prioritize has kept GPUs on the first."""


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(NOT_FORETOLD, sharer("p", 5), 0)
@given(st.lists(nodes(), min_size=1, max_size=3), pods(), st.sampled_from([0, 16]))
def test_what_is_said_is_what_is_done(several: list[Drawn], asked: Pod, candidates: int) -> None:
    """Node by node, with claims, holds, groups, modes, doubts, CPU and pods that bypassed us, in any mixture."""
    drawn = {f"n{number}": each for number, each in enumerate(several)}
    state = built(drawn, asked)
    told = inspection.explain(state, "ml", "p", at())
    assert told is not None
    said = {
        fit.node: frozenset(gpus(fit.node, *fit.indexes, machine_name=drawn[fit.node].machine)) for fit in told.fits
    }
    event(f"{len(said)} nodes fit")

    passed = filter_nodes(state, args(asked, *drawn), at(), candidates=candidates)
    assert list(passed.node_names) == [*said]
    if not said:
        refused = {**(passed.failed_nodes or {}), **(passed.failed_and_unresolvable_nodes or {})}
        assert Counter(refused.values()) == {
            f"{refusal.message} ({refusal.remedy})": refusal.nodes for refusal in told.refusals
        }
    claimed = {name for name, each in drawn.items() if each.own}
    for name, expected in sorted(said.items(), key=lambda fit: fit[0] not in claimed):
        state.memory.offers.forget("p")  # a first attempt each time: a pod that comes back is offered other nodes
        again = filter_nodes(state, args(asked, *drawn), at(), candidates=candidates)
        ranked = prioritize_nodes(state, args(asked, *again.node_names), at())
        assert [entry.host for entry in ranked if entry.score == 10] == [next(iter(said))]
        assert all(entry.score > 0 for entry in ranked)
        assert taken_by_bind(state, asked, name) == expected
        if claimed - {name}:
            break  # this bind has dropped the claims on the other nodes
