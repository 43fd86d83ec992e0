"""What GPUs do, for a node's page: read only while pages are looked at, of few agents at once, and never for long."""

from __future__ import annotations

import asyncio

from extender.features.view import agent_samples
from extender.features.view.agent_samples import AT_ONCE, REMEMBERED_SECONDS, AgentSamples
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.features.view.test_reviews import Time
from tests.extender.virtual_time import in_virtual_time

METRICS = b'gputopo_gpu_power_watts{uuid="GPU-1"} 300'


class Agents:
    """An API server that reaches agents."""

    def __init__(self, status: int = 200, seconds: float = 0.0) -> None:
        self.status, self.seconds = status, seconds
        self.paths = list[str]()
        self.at_once = self.most_at_once = 0

    async def send(self, request: Request) -> tuple[int, bytes]:
        """Answer with an agent's metrics."""
        assert request.method == "GET"
        self.paths.append(request.path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if not self.status:
            raise Unavailable("nobody there")
        return self.status, METRICS


def asking(agents: Agents, time: Time | None = None) -> AgentSamples:
    """Return what asks the agents of all nodes but one."""
    return AgentSamples(agents.send, time or Time(), lambda node: None if node == "bare" else ("gputopo", f"on-{node}"))


async def test_a_node_is_asked_once_in_a_while_however_many_look() -> None:
    """By the API server's way to the pod of its agent."""
    agents, time = Agents(), Time()
    samples = asking(agents, time)
    for _ in range(3):
        answer = await samples.of("n1")
        assert answer and answer["GPU-1"].power_watts == 300
    assert agents.paths == ["/api/v1/namespaces/gputopo/pods/on-n1/proxy/metrics"]
    time.now += REMEMBERED_SECONDS
    await samples.of("n1")
    assert len(agents.paths) == 2


async def test_where_nobody_answers_there_is_nothing_and_it_is_not_asked_for_again_at_once() -> None:
    """Nor is a node without an agent asked at all."""
    for agents in (Agents(status=0), Agents(status=403)):
        samples = asking(agents)
        assert [await samples.of("n1"), await samples.of("n1"), await samples.of("bare")] == [None] * 3
        assert len(agents.paths) == 1


@in_virtual_time
async def test_slow_agents_keep_no_page_waiting_and_few_are_asked_at_once() -> None:
    """Binds need the connections."""
    agents, clock = Agents(seconds=60.0), asyncio.get_running_loop().time
    samples, begun = asking(agents), clock()
    answers = await asyncio.gather(*(samples.of(f"n{number}") for number in range(9)))
    assert answers == [None] * 9
    assert (agents.most_at_once, len(agents.paths)) == (AT_ONCE, AT_ONCE)
    assert clock() - begun <= 1.01 * agent_samples.ANSWER_SECONDS


async def test_while_too_many_agents_are_asked_a_page_shows_what_it_showed_a_short_while_ago() -> None:
    """A reader who walks from node to node takes the samples from no open page of others."""
    agents, time = Agents(), Time()
    samples = asking(agents, time)
    assert await samples.of("n1")
    time.now += REMEMBERED_SECONDS
    for number in range(2, 40):
        await samples.of(f"n{number}")
    requests = len(agents.paths)
    assert await samples.of("n1")
    assert len(agents.paths) == requests
    time.now += agent_samples.SHOWN_SECONDS
    agents.status = 0
    assert await samples.of("n1") is None
