"""How an agent that hands out GPUs ends: nobody is sent to it any more, and whoever was finds it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.gpus.discovery import NodeDiscovery
from agent.gpus.host import Host
from agent.gpus.machine import GpuMachine
from agent.leave import KNOWN_SECONDS, PATIENCE_SECONDS, leave
from agent.metrics import AgentMetrics
from agent.node.look import Look
from agent.node.publish import Publication
from agent.node.watch import NodeVersion
from agent.service import Agent
from tests.agent.builders import FakeNode, machine_of
from topology.annotations import keys
from topology.annotations.status_codec import decode_status
from topology.node.status import DevicePluginStatus, Mode


class Kubelet:
    """A kubelet side to which a pod is on its way until `comes_at`; time passes while somebody sleeps."""

    def __init__(self, comes_at: float) -> None:
        self.now = 0.0
        self._comes_at = comes_at
        self.last_look = Look(DevicePluginStatus(Mode.ENFORCE, ready=True, session="1"), {})

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def leave(self) -> None:
        self.last_look = Look(DevicePluginStatus(Mode.ENFORCE, ready=False, session="1"), {})

    def look(self) -> Look:
        return self.last_look

    @property
    def is_expected(self) -> bool:
        return self.now < self._comes_at

    def about_to_publish(self, look: Look) -> bool:
        return True

    def published(self, look: Look) -> None:
        """Take what the Node says of containers."""

    def offer(self, discovery: NodeDiscovery) -> None:
        """Take what is found."""

    def heard(self, version: NodeVersion) -> None:
        """Take what the Node says."""


@pytest.mark.parametrize(("comes_at", "waited"), [(0.0, KNOWN_SECONDS), (2.0, 2.0), (float("inf"), PATIENCE_SECONDS)])
def test_agent_says_that_it_goes_and_waits_for_who_was_sent_to_it(comes_at: float, waited: float) -> None:
    """At least until every extender knows, at most as long as a bind may take."""
    node, kubelet, nowhere = FakeNode(), Kubelet(comes_at), Path("/nonexistent")
    machine = GpuMachine(lambda: machine_of("GPU-1"), Host(nowhere, nowhere))
    agent = Agent(
        machine, node, Publication(lambda: 0.5, 300.0), AgentMetrics("x"), lambda: kubelet.now, kubelet=kubelet
    )
    agent.turn()
    leave(agent, kubelet, lambda: kubelet.now, kubelet.sleep)
    said = [decode_status(write[keys.STATUS]).device_plugin for write in node.writes]
    assert [plugin.ready for plugin in said if plugin] == [True, False]
    assert kubelet.now == pytest.approx(waited, abs=0.1)
