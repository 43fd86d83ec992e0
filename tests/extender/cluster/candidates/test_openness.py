"""Which nodes take new pods: not those whose agent is silent or unwell, nor one that speaks for another node's GPUs."""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.caches.agents import LABELS
from extender.cluster.candidates.openness import (
    AGENT_NOT_READY,
    AGENT_SILENT,
    BY_DRA,
    NONE_WHOLE,
    NOT_READY,
    PLUGIN_NOT_READY,
    what_opens,
)
from extender.cluster.objects.kinds import Container, ContainerStatus, Node, ObjectMeta, Pod, PodSpec, PodStatus
from extender.cluster.state import ClusterState
from tests.extender.builders import claim, cluster, free, gpus, node, running
from topology.annotations import keys
from topology.annotations.pauses import CLIENT, UPGRADE_STATE
from topology.annotations.status_codec import encode_status
from topology.effort import finish
from topology.node.offers import OfferForm, ResourceOffer
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus

ALL = tuple(range(8))
G = gpus("n1", *ALL)
WHOLE, SHARED = ResourceOffer("nvidia.com/gpu", OfferForm.WHOLE), ResourceOffer("nvidia.com/gpu", OfferForm.SHARED, 2)
SLICED = ResourceOffer("nvidia.com/mig-1g.5gb", OfferForm.SLICED, 7)
NAMESPACE = "gputopo-system"


def agent(
    on: str = "n1", *, ready: bool = True, namespace: str = NAMESPACE, version: int = 1, name: str = "agent"
) -> Pod:
    """Build the pod of a node's agent."""
    return Pod(
        ObjectMeta(f"{name}-{on}", namespace, f"{name}-{on}", str(version), labels=dict(LABELS)),
        PodSpec(node_name=on, containers=[Container("agent")]),
        PodStatus(container_statuses=[ContainerStatus("agent", ready=ready)]),
    )


def with_plugin(mode: Mode, *, ready: bool) -> Node:
    """Build a node whose agent has said how its device plugin is."""
    return node(status=encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(mode, ready))))


def watched(*objects: Node | Pod) -> ClusterState:
    """Return a state that knows where the agents are."""
    state = ClusterState(agent_namespace=NAMESPACE)
    state.nodes.replaced([item for item in objects if isinstance(item, Node)])
    state.pods.replaced([item for item in objects if isinstance(item, Pod)])
    state.agents.replaced([item for item in objects if isinstance(item, Pod)])
    return state


def closed(state: ClusterState, name: str = "n1") -> str | None:
    return state.views[name].shape.closed


class TestSilence:
    """N2: by our own clock, from when we heard of it."""

    def test_a_node_closes_after_750_seconds_without_a_word(self) -> None:
        """The limit is exact to the second; rounds of upkeep are a second apart."""
        state = cluster(node(), node("n2"))
        for now in (1000.0, 1749.0):
            finish(state.listening(now))
            assert closed(state) is None
        state.nodes.changed(node("n2", reports=2, version=2))
        finish(state.listening(1751.0))
        assert (closed(state), closed(state, "n2"), len(state.heartbeats)) == (AGENT_SILENT, None, 1)

    def test_any_write_of_the_agent_opens_it_again(self) -> None:
        """Each one has a number of its own, also when nothing else has changed."""
        state = cluster(node())
        for now in (0.0, 800.0):
            finish(state.listening(now))
        state.nodes.changed(node(reports=2, version=2))
        finish(state.listening(801.0))
        assert closed(state) is None

    def test_what_others_write_on_the_node_says_nothing_of_its_agent(self) -> None:
        """Kubelets write every few seconds, and we write ledgers."""
        state = cluster(node())
        finish(state.listening(0.0))
        state.nodes.changed(node(claims=(claim(G[0], "p1"),), generation=2, version=2))
        finish(state.listening(751.0))
        assert closed(state) == AGENT_SILENT

    def test_running_pods_keep_their_claims(self) -> None:
        """Their GPUs are not given to others, and not taken from them."""
        state = cluster(node(claims=(claim(G[0], "p1"),)), running("p1", "n1", G[0]))
        for now in (0.0, 800.0):
            finish(state.listening(now))
        assert [kept.uid for kept, _ in state.views["n1"].claims] == ["p1"]
        assert state.views["n1"].settled

    def test_a_process_counts_from_its_own_start(self) -> None:
        """However large the clock's numbers are by then."""
        state = cluster(node())
        finish(state.listening(1e9))
        assert closed(state) is None


class TestReadiness:
    """N1."""

    def test_a_node_whose_agent_is_not_ready_takes_no_new_pods(self) -> None:
        """At once, and only until it is."""
        state = watched(node(), node("n2"), agent(ready=False), agent("n2"))
        assert (closed(state), closed(state, "n2")) == (AGENT_NOT_READY, None)
        state.agents.changed(agent(version=2))
        assert closed(state) is None
        state.agents.changed(agent(ready=False, version=1))
        assert closed(state) is None

    def test_an_agent_that_has_just_been_made_is_not_ready(self) -> None:
        """It has no containers to tell of."""
        starting = msgspec.structs.replace(agent(), status=PodStatus())
        assert closed(watched(node(), starting)) == AGENT_NOT_READY

    def test_an_agent_without_a_pod_is_judged_by_its_reports(self) -> None:
        """It may run outside the cluster, or be replaced just now."""
        state = watched(node(), agent(ready=False))
        state.agents.deleted(agent(ready=False, version=2))
        assert closed(state) is None

    @pytest.mark.parametrize(("mode", "reason"), [(Mode.OBSERVE, None), (Mode.ENFORCE, AGENT_NOT_READY)])
    def test_an_agent_that_restarts_closes_its_node_only_where_it_is_the_device_plugin(
        self, mode: Mode, reason: str | None
    ) -> None:
        """Where another plugin serves, the last report stands for a minute, also while a new pod takes the old one's place."""
        state = watched(with_plugin(mode, ready=True), agent())
        finish(state.listening(1000.0))
        state.agents.deleted(agent(version=2))
        state.agents.changed(agent(ready=False, name="next"))
        for now in (1001.0, 1060.0):
            finish(state.listening(now))
            assert closed(state) == reason
        finish(state.listening(1061.0))
        assert closed(state) == AGENT_NOT_READY

    def test_an_agent_that_is_back_may_restart_again(self) -> None:
        """Each time it has a minute."""
        state = watched(with_plugin(Mode.OBSERVE, ready=True), agent())
        for version, now in ((2, 1000.0), (4, 1050.0)):
            finish(state.listening(now))
            state.agents.changed(agent(ready=False, version=version))
            state.agents.changed(agent(version=version + 1))
        state.agents.changed(agent(ready=False, version=6))
        finish(state.listening(1105.0))
        assert closed(state) is None

    def test_our_labels_elsewhere_mean_nothing(self) -> None:
        """Anybody may put them on a pod of a namespace of his own."""
        assert closed(watched(node(), agent(ready=False, namespace="team"))) is None

    def test_a_node_that_is_said_not_to_be_ready_takes_no_new_pods(self) -> None:
        """kube-scheduler hears of it by a taint, later."""
        assert closed(cluster(node(ready=False))) == NOT_READY

    @pytest.mark.parametrize(
        ("mode", "ready", "reason"),
        [
            (Mode.ENFORCE, False, PLUGIN_NOT_READY),
            (Mode.ENFORCE, True, None),
            (Mode.OBSERVE, False, None),
        ],
    )
    def test_a_plugin_of_ours_that_is_not_ready_gets_no_new_pods(
        self, mode: Mode, reason: str | None, *, ready: bool
    ) -> None:
        """A pod bound now would not get the planned GPUs; where another plugin serves, it does not matter."""
        assert closed(cluster(with_plugin(mode, ready=ready))) == reason


class TestPauses:
    """While somebody has the driver for himself, no new pod comes; those that run keep what they have."""

    @pytest.mark.parametrize(
        ("labels", "reason"),
        [
            ({CLIENT: "true"}, None),
            ({CLIENT: "false"}, "paused: GPU clients are switched off"),
            ({CLIENT: "paused-for-mig-change"}, "paused: MIG change"),
            ({UPGRADE_STATE: "upgrade-required"}, None),
            ({UPGRADE_STATE: "cordon-required"}, "paused: driver upgrade"),
            ({UPGRADE_STATE: "uncordon-required"}, "paused: driver upgrade"),
            ({UPGRADE_STATE: "upgrade-done"}, None),
        ],
    )
    def test_the_operators_labels_close_a_node(self, labels: dict[str, str], reason: str | None) -> None:
        """Only from when it begins to drain until it is about to uncordon, and while no client is to run there."""
        built = node()
        labelled = msgspec.structs.replace(built, metadata=msgspec.structs.replace(built.metadata, labels=labels))
        assert closed(cluster(labelled)) == reason

    @pytest.mark.parametrize("closed", ["paused", "paused: driver upgrade", f"paused: {NOT_READY}"])
    def test_people_are_told_who_ends_it(self, closed: str) -> None:
        """Whatever somebody has written for a reason."""
        assert "gputopo.dev/pause" in what_opens(closed)

    def test_pods_that_run_stay_recorded(self) -> None:
        """Their claims stand, and nothing has to be found out."""
        state = cluster(node(claims=(claim(G[0], "p1"),)), running("p1", "n1", G[0]))
        paused = node(claims=(claim(G[0], "p1"),), version=2)
        assert paused.metadata.annotations is not None
        paused.metadata.annotations[keys.PAUSE] = "new firmware"
        state.nodes.changed(paused)
        view = state.views["n1"]
        assert (view.shape.closed, [kept.uid for kept, _ in view.claims]) == ("paused: new firmware", ["p1"])
        assert view.settled


@pytest.mark.parametrize(
    ("offers", "reason"),
    [
        ([(SHARED,), (SHARED,)], NONE_WHOLE),
        ([(SHARED,), ()], NONE_WHOLE),
        ([(SHARED,), (WHOLE,)], None),
        ([(SHARED,), None], None),
        ([None, None], None),
        ([(SLICED,), (SLICED,)], None),
    ],
)
def test_a_node_of_which_no_gpu_is_offered_whole_is_closed(
    offers: list[tuple[ResourceOffer, ...] | None], reason: str | None
) -> None:
    """Where it is known of each GPU, and only there; what is known of single ones is the agent's to say."""
    told = tuple(GpuStatus(gpu, offers=made) for gpu, made in zip(gpus("n1", 0, 1), offers, strict=True))
    assert closed(cluster(node(status=encode_status(NodeGpuStatus(1, told))))) == reason


def test_a_forged_topology_of_ten_thousand_gpus_closes_its_node_only() -> None:
    """N16: it is refused by its size, before anything is made of it."""
    forged = '{"v":1,"gpus":[' + ",".join('{"uuid":"G","index":0,"model":"m"}' for _ in range(10_000)) + "]}"
    state = cluster(node("n1", topology=forged), node("n2"))
    assert (closed(state), free(state, "n2")) == ("GPU topology cannot be read", ALL)
    assert keys.TOPOLOGY in (state.views["n1"].node.metadata.annotations or {})


def offering(name: str, gpus: str | None, version: int = 1) -> Node:
    """Return a node of which the device plugin offers so many GPUs; `None`: it has never offered any."""
    found = node(name, version=version)
    allocatable = {} if gpus is None else {keys.GPU_RESOURCE: gpus}
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, allocatable=allocatable))


class TestDra:
    """Where a DeviceClass maps the resource, kube-scheduler hands out GPUs by DRA on nodes where nobody else offers any."""

    def test_nodes_where_no_device_plugin_offers_gpus_are_closed(self) -> None:
        """Only those, and only while a DeviceClass maps the resource: with none, who asks for GPUs does not come there."""
        state = cluster(offering("n1", "8"), offering("n2", "0"), offering("n3", None))
        assert [closed(state, name) for name in ("n1", "n2", "n3")] == [None, None, None]
        state.map_to_dra(True)
        assert [closed(state, name) for name in ("n1", "n2", "n3")] == [None, BY_DRA, BY_DRA]
        state.map_to_dra(False)
        assert [closed(state, name) for name in ("n1", "n2", "n3")] == [None, None, None]

    def test_a_node_opens_when_its_device_plugin_offers_gpus(self) -> None:
        """And closes when the plugin leaves: from that moment kube-scheduler allocates devices there."""
        state = cluster(offering("n1", "0"))
        state.map_to_dra(True)
        for version, offered, why in ((2, "8", None), (3, "0", BY_DRA)):
            state.nodes.changed(offering("n1", offered, version))
            assert closed(state) == why
