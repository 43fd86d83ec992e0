"""The loop between NVML and the Node object: what it survives, and what it never does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agent.errors import ApiError, NvmlUnavailable
from agent.gpus.discovery import NodeDiscovery
from agent.gpus.facts import Known, NvmlFacts
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.gpus.nvml.access import CLOSED, PAUSED
from agent.gpus.nvml.time_limit import TIMED_OUT
from agent.metrics import AgentMetrics
from agent.node.condition import ConditionKeeper, gpus_healthy
from agent.node.look import Look
from agent.node.publish import Publication
from agent.node.watch import NodeVersion
from agent.service import Agent
from tests.agent.builders import UNSUPPORTED, FakeNode, gpu_facts, machine_of
from tests.agent.conftest import Read
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.records import Holder, decode_observed
from topology.annotations.status_codec import decode_status
from topology.node.status import DevicePluginStatus, Mode


class Life:
    """An agent on virtual time: NVML answers one outcome per turn, and the last one for ever."""

    def __init__(
        self, node: FakeNode, *outcomes: NvmlFacts | NvmlUnavailable, condition: ConditionKeeper | None = None
    ) -> None:
        self.now = 0.0
        self.node = node
        self.metrics = AgentMetrics("test")
        self._outcomes: Sequence[NvmlFacts | NvmlUnavailable] = outcomes
        self._turns = 0
        nowhere = Path("/nonexistent")
        publication = Publication(lambda: 0.5, 300.0)
        machine = GpuMachine(self._read, Host(nowhere, nowhere))
        self.agent = Agent(machine, node, publication, self.metrics, lambda: self.now, condition=condition)

    def _read(self) -> NvmlFacts:
        outcome = self._outcomes[min(self._turns, len(self._outcomes) - 1)]
        self._turns += 1
        if isinstance(outcome, NvmlUnavailable):
            raise outcome
        return outcome

    def turns(self, count: int, every: float = 30.0) -> None:
        """Let the agent turn."""
        for _ in range(count):
            self.agent.turn()
            self.now += every


def test_ten_minutes_of_nothing_new() -> None:
    """One read, the first write, and two refreshes."""
    node = FakeNode()
    Life(node, machine_of("GPU-1")).turns(21)
    assert (node.reads, len(node.writes)) == (1, 3)
    assert [sorted(write) for write in node.writes[1:]] == [[keys.STATUS]] * 2


def test_the_condition_follows_the_look_once_the_node_is_known() -> None:
    """What stands there already is not known before the first read, and an agent without the setting asks for nothing."""
    shown: list[str] = []

    class Keeper(ConditionKeeper):
        def __init__(self) -> None:
            pass

        def show(self, discovery: NodeDiscovery) -> None:
            shown.append(gpus_healthy(discovery).status)

    node = FakeNode()
    node.failure = ApiError(0, "nobody there")
    gone = NvmlUnavailable("DRIVER_NOT_LOADED", "gone")
    life = Life(node, machine_of("GPU-1"), machine_of("GPU-1"), gone, condition=Keeper())
    life.turns(1)
    assert shown == []
    node.failure = None
    life.turns(2)
    assert shown == ["True", "Unknown"]


def test_refresh_writes_once_more() -> None:
    """The status alone; what was refused on the node is then looked at again."""
    life = Life(node := FakeNode(), machine_of("GPU-1"))
    life.turns(2)
    life.agent.refresh()
    life.turns(2)
    assert [sorted(write) for write in node.writes[1:]] == [[keys.STATUS]]


def test_described_machine_arrives_on_its_node(read: Read) -> None:
    """From the C library to the annotation."""
    node = FakeNode({"somebody.example/else": "x"})
    Life(node, read("hgx_h100")).turns(1)
    topology = decode_topology(node.annotations[keys.TOPOLOGY])
    assert topology.label(0, 7) == "NV18"
    assert node.annotations["somebody.example/else"] == "x"
    assert set(node.writes[0]) == {keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS}


def test_gpu_that_gets_lost_changes_the_status_alone(read: Read) -> None:
    """The next look after the loss."""
    node = FakeNode()
    Life(node, read("hgx_h100"), read("lost_handle")).turns(2)
    assert [sorted(write) for write in node.writes[1:]] == [[keys.STATUS]]
    assert len(decode_status(node.annotations[keys.STATUS]).unhealthy) == 1


def test_gpu_lost_while_no_agent_ran_is_remembered_from_the_node(read: Read) -> None:
    """The annotations are the memory."""
    node = FakeNode()
    Life(node, read("hgx_h100")).turns(1)
    topology = node.annotations[keys.TOPOLOGY]
    Life(node, read("lost_handle")).turns(1)
    assert node.annotations[keys.TOPOLOGY] == topology
    assert len(decode_status(node.annotations[keys.STATUS]).unhealthy) == 1


def test_driver_that_goes_and_comes_back() -> None:
    """In between the GPUs are there and unhealthy."""
    node = FakeNode()
    life = Life(node, machine_of("GPU-1"), NvmlUnavailable("DRIVER_NOT_LOADED", "gone"), machine_of("GPU-1"))
    life.turns(2)
    assert decode_status(node.annotations[keys.STATUS]).gpus[0].reasons == ("nvml unavailable: DRIVER_NOT_LOADED",)
    life.turns(1)
    assert decode_status(node.annotations[keys.STATUS]).unhealthy == frozenset()
    assert b'gputopo_agent_discovery_failures_total{code="DRIVER_NOT_LOADED"} 1.0' in life.metrics.text()


def test_node_without_a_driver_is_left_alone() -> None:
    """A node that never had GPUs gets no annotations that say so; the agent waits for a driver."""
    node = FakeNode()
    life = Life(
        node,
        NvmlUnavailable("LIBRARY_NOT_FOUND", "none"),
        NvmlUnavailable("LIBRARY_NOT_FOUND", "none"),
        machine_of("GPU-1"),
    )
    life.turns(2)
    assert node.writes == []
    life.turns(1)
    assert len(node.writes) == 1


def test_stale_library_ends_the_process() -> None:
    """Only a new process loads the library that fits the new driver."""
    life = Life(FakeNode(), machine_of("GPU-1"), NvmlUnavailable("LIB_RM_VERSION_MISMATCH", "updated"))
    life.turns(1)
    with pytest.raises(NvmlUnavailable):
        life.turns(1)


def test_api_server_that_is_away_stops_nothing() -> None:
    """The agent keeps looking, asks again with growing pauses, and writes what is true then."""
    node = FakeNode()
    node.failure = ApiError(0, "nobody there")
    life = Life(node, machine_of("GPU-1"), machine_of("GPU-1", "GPU-2"))
    life.turns(10)
    assert node.reads < 10
    assert node.writes == []
    node.failure = None
    life.turns(5)
    assert life.agent.is_ready
    assert len(decode_topology(node.annotations[keys.TOPOLOGY])) == 2


def test_refused_write_is_tried_again() -> None:
    """A conflict, a policy, an overload: not lost."""
    node = FakeNode()
    life = Life(node, machine_of("GPU-1"))
    life.turns(1)
    node.failure = ApiError(403, "forbidden")
    life.turns(12)
    assert b'gputopo_agent_writes_total{result="403"}' in life.metrics.text()
    node.failure = None
    life.turns(4)
    assert len(node.writes) == 2


def test_n13_nvml_that_hangs_closes_the_node_and_then_fails_the_liveness_probe() -> None:
    """No GPU is given away meanwhile; the agent goes on, until a new process may be of help."""
    node, hangs = FakeNode(), NvmlUnavailable(TIMED_OUT, "it hangs")
    life = Life(node, machine_of("GPU-1"), hangs)
    life.turns(2)
    assert decode_status(node.annotations[keys.STATUS]).unhealthy == {"GPU-1"}
    assert len(decode_topology(node.annotations[keys.TOPOLOGY]).gpus) == 1
    life.turns(4)
    assert life.agent.is_turning(30.0)
    life.turns(1)
    assert not life.agent.is_turning(30.0)


def test_a_loop_that_stands_still_fails_the_liveness_probe() -> None:
    """Whatever it waits for."""
    life = Life(FakeNode(), machine_of("GPU-1"))
    life.turns(1)
    assert life.agent.is_turning(30.0)
    life.now += 300.0
    assert not life.agent.is_turning(30.0)


def test_no_gpu_is_published_as_no_gpu() -> None:
    """A driver that works and finds none is an answer, not a failure."""
    node = FakeNode()
    Life(node, machine_of()).turns(1)
    assert decode_topology(node.annotations[keys.TOPOLOGY]).gpus == ()


def test_agent_is_ready_when_the_node_says_what_it_has_found() -> None:
    """What an agent before it had said is no longer so; a node that cannot be written to is not known to say anything."""
    node = FakeNode({keys.STATUS: '{"v":1,"generation":7}'})
    life = Life(node, machine_of("GPU-1"))
    assert not life.agent.is_ready
    life.turns(1)
    assert (life.agent.is_ready, len(node.writes)) == (True, 1)
    again = Life(FakeNode(node.annotations), machine_of("GPU-1"))
    again.turns(1)
    assert (again.agent.is_ready, again.node.writes) == (True, [])


def test_while_the_driver_is_left_alone_the_gpus_stay_and_take_no_pods() -> None:
    """Nothing is sick, nothing has failed, and they are offered again as soon as NVML may be asked."""
    node = FakeNode()
    machine = machine_of("GPU-1", "GPU-2")
    life = Life(node, machine, NvmlUnavailable(PAUSED, "paused: driver upgrade"), machine)
    life.turns(2)
    found = decode_status(node.annotations[keys.STATUS])
    assert [(gpu.healthy, gpu.reasons, gpu.sick_since) for gpu in found.gpus] == [
        (False, ("paused: driver upgrade",), None)
    ] * 2
    life.turns(1)
    assert decode_status(node.annotations[keys.STATUS]).unhealthy == frozenset()
    assert b"discovery_failures_total{" not in life.metrics.text()


def test_agent_that_ends_says_nothing_more_of_its_gpus() -> None:
    """NVML is closed by then, which is nobody's trouble."""
    node = FakeNode()
    life = Life(node, machine_of("GPU-1"), NvmlUnavailable(CLOSED, "the agent is about to end"))
    life.turns(3)
    assert len(node.writes) == 1


def test_unidentified_gpu_is_counted_as_unhealthy() -> None:
    """By index, in status and metric."""
    node = FakeNode()
    counted = NvmlFacts(UNSUPPORTED, UNSUPPORTED, (UNSUPPORTED, Known(gpu_facts(uuid=Known("GPU-1")))), {})
    life = Life(node, counted)
    life.turns(1)
    assert decode_status(node.annotations[keys.STATUS]).unhealthy == {"index-0"}
    assert b'gputopo_agent_gpus{state="unhealthy"} 1.0' in life.metrics.text()


def test_nvlinks_that_go_and_come_back_are_counted() -> None:
    """Both series are there from the start, so that the first change is a rise."""
    metrics = AgentMetrics("test")
    assert b'gputopo_agent_nvlink_changes_total{state="up"} 0.0' in metrics.text()
    metrics.links_changed(3, are_used=False)
    metrics.links_changed(2, are_used=True)
    assert b'gputopo_agent_nvlink_changes_total{state="down"} 3.0' in metrics.text()
    assert b'gputopo_agent_nvlink_changes_total{state="up"} 2.0' in metrics.text()


class Written(FakeNode):
    """A Node that counts its writes."""

    @property
    def generation(self) -> int:
        return len(self.writes)


class Kubelet:
    """A kubelet side on which a pod has come since it was seen last."""

    def __init__(self) -> None:
        self.last_look = Look(DevicePluginStatus(Mode.OBSERVE, ready=True), {})
        self.looks = 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.node: Written | None = None
        self.may_say = True
        self.told: list[tuple[str, int]] = []
        """What it was told of the Node, and how often that had been written by then."""

    def look(self) -> Look:
        self.looks += 1
        self.meanwhile()
        return Look(self.last_look.plugin, {"GPU-1": Holder("ml", f"pod-{self.looks}", "main")})

    def about_to_publish(self, look: Look) -> bool:
        self.told.append(("is to say", self.node.generation if self.node else 0))
        return self.may_say

    def published(self, look: Look) -> None:
        self.told.append(("says", self.node.generation if self.node else 0))

    def offer(self, discovery: NodeDiscovery) -> None:
        """Take what is found."""

    def leave(self) -> None:
        """Serve on."""

    @property
    def is_expected(self) -> bool:
        return False

    def heard(self, version: NodeVersion) -> None:
        """Take what the Node says."""


def test_every_write_has_a_look_of_its_own() -> None:
    """Readers count on it: a write says what was so after the write before."""
    node, kubelet = FakeNode(), Kubelet()
    nowhere = Path("/nonexistent")
    publication = Publication(lambda: 0.5, 300.0)
    machine, host, metrics = machine_of("GPU-1"), Host(nowhere, nowhere), AgentMetrics("x")
    agent = Agent(GpuMachine(lambda: machine, host), node, publication, metrics, lambda: 0.0, kubelet=kubelet)
    agent.turn()
    agent.turn()
    assert [decode_observed(write[keys.OBSERVED]).gpus["GPU-1"].name for write in node.writes] == ["pod-1", "pod-2"]


def test_what_is_heard_of_during_a_look_is_not_what_the_look_answers() -> None:
    """The container may have started in between."""
    node, kubelet = FakeNode(), Kubelet()
    nowhere = Path("/nonexistent")
    publication = Publication(lambda: 0.5, 300.0)
    machine, host, metrics = machine_of("GPU-1"), Host(nowhere, nowhere), AgentMetrics("x")
    agent = Agent(GpuMachine(lambda: machine, host), node, publication, metrics, lambda: 0.0, kubelet=kubelet)
    agent.heard(NodeVersion("7"))
    kubelet.meanwhile = lambda: agent.heard(NodeVersion("9", look="8"))
    agent.turn()
    agent.publish()
    assert [decode_observed(write[keys.OBSERVED]).node_version for write in node.writes] == ["7", "9"]


def test_kubelet_side_hears_before_and_after_each_write_what_the_node_says_of_containers() -> None:
    """So nothing is withdrawn that the node does not account for, whatever becomes of the write."""
    node, kubelet = Written(), Kubelet()
    kubelet.node = node
    agent = agent_beside(kubelet, node)
    agent.turn()
    assert kubelet.told == [("is to say", 0), ("says", 1)]
    kubelet.told.clear()
    node.failure = ApiError(500, "it may have been written")
    agent.turn()
    assert kubelet.told == [("is to say", 1)]


def test_nothing_is_written_that_the_kubelet_side_is_not_ready_for() -> None:
    """It is asked again with the next look."""
    node, kubelet = Written(), Kubelet()
    kubelet.may_say = False
    agent = agent_beside(kubelet, node)
    agent.turn()
    assert node.writes == []
    kubelet.may_say = True
    agent.turn()
    assert len(node.writes) == 1


def test_what_an_agent_before_this_one_has_written_is_said_too() -> None:
    """Nothing has changed since, so nothing is written."""
    node, kubelet = Written(), Kubelet()
    agent_beside(kubelet, node).turn()
    after, writes = Kubelet(), len(node.writes)
    after.node = node
    after.last_look = Look(kubelet.last_look.plugin, {"GPU-1": Holder("ml", "pod-1", "main")})
    agent_beside(after, node).turn()
    assert (after.told, len(node.writes)) == ([("says", writes)], writes)


def agent_beside(kubelet: Kubelet, node: FakeNode) -> Agent:
    """Return an agent of one GPU."""
    nowhere = Path("/nonexistent")
    machine = GpuMachine(lambda: machine_of("GPU-1"), Host(nowhere, nowhere))
    return Agent(machine, node, Publication(lambda: 0.5, 300.0), AgentMetrics("x"), lambda: 0.0, kubelet=kubelet)
