"""How agents are: by their pods, which are in one namespace and labelled, and by what they write."""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.caches.agents import LABELS, AgentHeartbeats, AgentPods
from extender.cluster.objects.kinds import (
    ContainerState,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)


def agent(
    uid: str = "a",
    *,
    node: str | None = "n1",
    ready: tuple[bool, ...] = (True,),
    version: int = 1,
    namespace: str = "gputopo",
    labels: dict[str, str] | None = None,
) -> Pod:
    """Build an agent's pod."""
    statuses = [ContainerStatus(f"c{at}", ContainerState(), ready=is_ready) for at, is_ready in enumerate(ready)]
    wanted = dict(LABELS) if labels is None else labels
    return Pod(
        ObjectMeta(name=uid, namespace=namespace, uid=uid, resource_version=str(version), labels=wanted),
        PodSpec(node_name=node),
        PodStatus(container_statuses=statuses or None),
    )


def pods() -> tuple[AgentPods, list[str]]:
    """Return agents, and the nodes that they have told of."""
    told: list[str] = []
    return AgentPods("gputopo", told.append), told


@pytest.mark.parametrize(
    ("pod", "is_one"),
    [
        (agent(), True),
        (agent(labels={**LABELS, "more": "x"}), True),
        (agent(namespace="default"), False),
        (agent(labels={"app.kubernetes.io/name": "gputopo"}), False),
        (agent(labels={}), False),
    ],
)
def test_an_agent_is_known_by_namespace_and_labels(pod: Pod, *, is_one: bool) -> None:
    """Anybody may put labels on a pod elsewhere; other pods of ours are no agents."""
    agents, told = pods()
    assert agents.is_one(pod) is is_one
    agents.changed(pod)
    assert (agents.is_ready("n1"), told) == ((True, ["n1"]) if is_one else (None, []))


def test_a_pod_without_labels_is_no_agent() -> None:
    """Most pods have some, and none has to."""
    bare = agent()
    metadata = msgspec.structs.replace(bare.metadata, labels=None)
    assert not pods()[0].is_one(msgspec.structs.replace(bare, metadata=metadata))


@pytest.mark.parametrize(("ready", "is_ready"), [((), False), ((True, True), True), ((True, False), False)])
def test_an_agent_is_ready_if_all_of_its_containers_are(ready: tuple[bool, ...], *, is_ready: bool) -> None:
    """One whose containers nobody has heard of is not."""
    agents, _ = pods()
    agents.changed(agent(ready=ready))
    assert agents.is_ready("n1") is is_ready


def test_an_agent_on_a_node_that_was_lost_is_not_ready() -> None:
    """Its containers are ready as the lost kubelet left them; the node lifecycle controller says that the pod is not."""
    lost = agent()
    status = msgspec.structs.replace(lost.status, conditions=[PodCondition("Ready", "False", "NodeNotReady")])
    agents, _ = pods()
    agents.changed(msgspec.structs.replace(lost, status=status))
    assert agents.is_ready("n1") is False


def test_of_two_agents_on_a_node_one_is_enough() -> None:
    """While a new one comes the old one goes; without any nobody knows."""
    agents, told = pods()
    agents.changed(agent("old", ready=(False,)))
    agents.changed(agent("new"))
    assert agents.is_ready("n1") is True
    agents.deleted(agent("new"))
    assert agents.is_ready("n1") is False
    agents.deleted(agent("old"))
    assert agents.is_ready("n1") is None
    agents.deleted(agent("old"))
    assert told == ["n1"] * 4


def test_an_older_version_of_an_agent_changes_nothing() -> None:
    """Nor does one that is bound to no node; a newer one does."""
    agents, told = pods()
    agents.changed(agent("waits", node=None))
    agents.changed(agent(version=3))
    agents.changed(agent(version=2, ready=(False,)))
    assert (agents.is_ready("n1"), told) == (True, ["n1"])
    agents.changed(agent(version=4, ready=(False,)))
    assert (agents.is_ready("n1"), told) == (False, ["n1", "n1"])


def test_a_list_is_all_there_is() -> None:
    """Who is missing is gone, and who is there is as the list says."""
    agents, told = pods()
    agents.changed(agent("a"))
    agents.changed(agent("b", node="n2"))
    agents.replaced([agent("b", node="n2"), agent("c", node="n3")])
    assert [agents.is_ready(name) for name in ("n1", "n2", "n3")] == [None, True, True]
    assert told == ["n1", "n2", "n1", "n2", "n3"]


def test_an_agent_is_silent_once_it_has_not_written_for_longer_than_the_limit() -> None:
    """Counted from when its last status was heard of; who falls silent and who speaks again is told once."""
    statuses: dict[str, str] = {}
    heartbeats = AgentHeartbeats(statuses.get, 10.0)
    story = [
        (0.0, "one", set()),
        (10.0, "one", set()),
        (10.5, "one", {"n1"}),
        (30.0, "one", set()),
        (31.0, "two", {"n1"}),
        (41.0, "two", set()),
        (41.5, "two", {"n1"}),
    ]
    for now, text, changed in story:
        assert _listen(heartbeats, statuses, now, n1=text, n2=str(now)) == changed
    assert (len(heartbeats), heartbeats.is_silent("n1"), heartbeats.is_silent("n2")) == (1, True, False)
    assert _listen(heartbeats, statuses, 42.0, n1=None) == {"n1"}
    assert len(heartbeats) == 0


def test_an_agent_of_which_there_is_no_news_falls_silent() -> None:
    """One that is gone does not, and whoever spoke last is last; a node without a status has an agent that never wrote."""
    statuses: dict[str, str] = {}
    heartbeats = AgentHeartbeats(statuses.get, 10.0)
    assert not _listen(heartbeats, statuses, 0.0, n1="one", n2="", n3="one")
    assert not _listen(heartbeats, statuses, 5.0, n1="two", n3=None)
    assert not heartbeats.listen(10.0)
    assert heartbeats.listen(10.5) == {"n2"}
    assert heartbeats.listen(15.5) == {"n1"}


def _listen(heartbeats: AgentHeartbeats, statuses: dict[str, str], now: float, **news: str | None) -> set[str]:
    """Let nodes have these statuses, or be gone, and listen."""
    for name, text in news.items():
        statuses.pop(name, None)
        if text is not None:
            statuses[name] = text
        heartbeats.node_changed(name)
    return heartbeats.listen(now)
