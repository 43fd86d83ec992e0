"""A node that a pod has won in vain steps back, so that the pod does not wait for ever."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from benchmarks.simulated.double.resources import EVENTS, PODS
from benchmarks.simulated.double.server import Faultless, Handler
from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.scheduler_loop import BoundPod as Scheduled
from benchmarks.simulated.scheduler_loop import ExtenderFailed, SchedulerLoop
from extender.binding.intents import BindPod, Intent, NoAnswer, Refused, Reply
from extender.binding.outcome import Bound
from extender.cluster.candidates.setbacks import Setbacks
from extender.cluster.objects.kinds import Node, OwnerReference, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.verbs.filter_prioritize import STEPS_BACK, filter_nodes, prioritize_nodes
from tests.extender.builders import args, at, cluster, gpus, node, pod, running
from tests.extender.polling import until
from tests.extender.serving import Running, serving
from tests.extender.world import Replica, World, drive
from topology.annotations import keys

SIX = tuple(f"n{number}" for number in range(1, 7))


def winner(state: ClusterState, asked: Pod, *names: str, now: float = 0.0, candidates: int = 16) -> str | None:
    """Return what kube-scheduler takes when ours are the only scores; it asks for none where one node is left."""
    passing = filter_nodes(state, args(asked, *names), at(now), candidates=candidates).node_names
    if len(passing) < 2:
        return next(iter(passing), None)
    return max(prioritize_nodes(state, args(asked, *passing), at(now)), key=lambda entry: entry.score).host


def winners(state: ClusterState, asked: Pod, *names: str, attempts: int, every: float = 2.0) -> list[str | None]:
    """Return who wins a pod that is never bound, attempt by attempt."""
    return [winner(state, asked, *names, now=number * every) for number in range(attempts)]


def refuse(world: World, node_name: str, reply: Reply) -> Callable[[Intent], Reply]:
    """Execute everything but Bindings to one node, all of which get this reply."""
    return lambda intent: reply if isinstance(intent, BindPod) and intent.node == node_name else world.execute(intent)


class TestTheNextOne:
    """Who wins when the best one always fails."""

    def test_a_pod_that_is_never_bound_is_tried_on_all_of_six_equal_nodes(self) -> None:
        """Something fails after the scores, such as a volume, and nobody says what."""
        tried = Counter(winners(cluster(*map(node, SIX)), pod("p", 2), *SIX, attempts=50))
        assert set(tried) == set(SIX)
        assert max(tried.values()) - min(tried.values()) <= 2

    @pytest.mark.parametrize("candidates", [0, 1, 2, 16])
    def test_the_second_attempt_is_for_another_node(self, candidates: int) -> None:
        """However many are passed on."""
        state = cluster(*map(node, SIX))
        tried = [winner(state, pod("p", 2), *SIX, now=now, candidates=candidates) for now in (0.0, 2.0)]
        assert len(set(tried)) == 2

    @pytest.mark.parametrize("reply", [Refused(403, "a policy"), NoAnswer("a webhook that hangs")])
    def test_a_pod_whose_bindings_one_node_refuses_is_bound_by_the_second_attempt(self, reply: Reply) -> None:
        """Bind itself tells, however soon the pod is back."""
        world = World(*SIX)
        uid = world.add_pod("p")["metadata"]["uid"]
        replica = Replica(world)
        asked = msgspec.convert(world.find("p"), Pod)
        outcomes = []
        for _ in range(2):
            chosen = winner(replica.state, asked, *SIX)
            outcomes.append(drive(replica.start_bind("p", str(chosen), uid), refuse(world, "n1", reply)))
            replica.catch_up()
        assert [isinstance(outcome, Bound) for outcome in outcomes] == [False, True]

    def test_the_only_one_that_fits_is_tried_again(self) -> None:
        """Stepping back never turns a yes into a no."""
        full = running("other", "n2", *gpus("n2", *range(8)))
        assert winners(cluster(node("n1"), node("n2"), full), pod("p", 2), "n1", "n2", attempts=5) == ["n1"] * 5

    def test_where_all_step_back_the_one_that_is_back_first_is_tried(self) -> None:
        """Whichever failed first: n1 failed twice, and steps back for twice as long."""
        state, asked = cluster(node("n1"), node("n2")), pod("p", 2)
        for name, now in (("n1", 0.0), ("n1", 31.0), ("n2", 40.0)):
            state.memory.setbacks.fail("p", name, now)
        assert filter_nodes(state, args(asked, "n1", "n2"), at(41.0)).node_names == ["n2"]

    def test_the_gpus_that_are_held_for_another_pod_are_no_way_out(self) -> None:
        """That pod would fail in its turn."""
        state = cluster(*map(node, SIX[:3]))
        assert winner(state, pod("other", 8), "n2") == "n2"
        assert winners(state, pod("p", 8), *SIX[:3], attempts=3) == ["n1", "n3", "n1"]

    def test_a_worse_node_is_better_than_none(self) -> None:
        """The best one has a ring and always fails; the other one has no NVLink, and works."""
        state = cluster(node("n1"), node("slow", "l4-8"))
        assert winners(state, pod("p", 2), "n1", "slow", attempts=2) == ["n1", "slow"]

    def test_other_pods_go_where_they_would(self) -> None:
        """What fails may be the pod."""
        state = cluster(*map(node, SIX))
        winners(state, pod("p", 2), *SIX, attempts=2)
        state.holds.release("p")
        assert winner(state, pod("q", 2), *SIX, now=4.0) == "n1"

    def test_the_scores_of_those_that_step_back_are_the_lowest(self) -> None:
        """Other scorers must not make up for it."""
        state = cluster(*map(node, SIX))
        winner(state, pod("p", 2), *SIX)
        filter_nodes(state, args(pod("p", 2), *SIX), at(2.0))
        scores = prioritize_nodes(state, args(pod("p", 2), *SIX), at(2.0))
        assert {entry.host: entry.score for entry in scores} == dict.fromkeys(SIX, 9) | {"n1": 0, "n2": 10}

    def test_the_inspect_page_says_so(self) -> None:
        """Whoever asks why the pod does not go to the best node finds it among the others."""
        state = cluster(*map(node, SIX), pod("p", 2))
        winners(state, pod("p", 2), *SIX, attempts=2)
        told = inspection.explain(state, "ml", "p", at(2.0))
        assert told is not None
        assert [fit.node for fit in told.fits] == list(SIX[1:])
        assert [(refusal.message, refusal.example) for refusal in told.refusals] == [(STEPS_BACK, "n1")]


class NoBindingsTo(Faultless):
    """A webhook of somebody else's that refuses every Binding to one node."""

    def __init__(self, node_name: str) -> None:
        self.refused = 0
        self._node = node_name

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        if request.path.endswith("/binding") and json.loads(await request.read())["target"]["name"] == self._node:
            self.refused += 1
            return web.json_response({"kind": "Status", "code": 403, "message": "not there"}, status=403)
        return await handler(request)


@pytest.mark.slow
async def test_the_scheduling_loop_comes_past_a_node_that_refuses_every_binding(tmp_path: Path) -> None:
    """Over HTTP, as kube-scheduler does it: each pod is refused once, and then bound elsewhere."""
    webhook = NoBindingsTo("n1")
    nodes = [SimulatedNode(name, "l40s-8") for name in SIX]
    async with serving(tmp_path, *nodes, faults=webhook) as extender:
        loop, bound_to = SchedulerLoop(extender.api, extender.session, extender.url), list[str]()
        for name in ("p", "q"):
            made = await extender.create(name, 8)
            with pytest.raises(ExtenderFailed, match="not there"):
                await loop.schedule(made)
            outcome = await loop.schedule(made)
            assert isinstance(outcome, Scheduled)
            bound_to.append(outcome.node)
    assert bound_to == ["n2", "n3"]
    assert webhook.refused == 2


@pytest.mark.slow
async def test_a_node_that_is_passed_over_is_no_unsatisfied_request(tmp_path: Path) -> None:
    """kube-scheduler asks about the other nodes next: nobody has to be told anything."""
    nodes = [SimulatedNode(name, "l40s-8") for name in SIX]
    async with serving(tmp_path, *nodes, faults=NoBindingsTo("n1")) as extender:
        made = await extender.create("p", 8)
        with pytest.raises(ExtenderFailed, match="not there"):
            await SchedulerLoop(extender.api, extender.session, extender.url).schedule(made)
        nominated = made | {"status": {"nominatedNodeName": "n1"}}
        _, answer = await extender.post("filter", {"Pod": nominated, "NodeNames": ["n1"]})
        assert answer["FailedNodes"] == {"n1": STEPS_BACK}
        await extender.post("filter", {"Pod": await extender.create("giant", 9), "NodeNames": ["n1"]})
        await until(lambda: unsatisfied(extender))
        assert unsatisfied(extender) == ["giant"]


def unsatisfied(extender: Running) -> list[str]:
    events = extender.store.list(EVENTS).items
    return [event["involvedObject"]["name"] for event in events if event["reason"] == "GPUTopologyUnsatisfied"]


class TestGroups:
    """A group's pods step back within their domain first."""

    def hall(self) -> list[Node]:
        racks = {"a1": "a", "a2": "a", "b1": "b"}
        return [node(name, labels={"topology.kubernetes.io/rack": rack}) for name, rack in racks.items()]

    def member(self, name: str, affinity: str, on: str | None = None) -> Pod:
        wants = {keys.GROUP: "llama", keys.GROUP_SIZE: "2", keys.GROUP_AFFINITY: affinity}
        placed = gpus(on, *range(8)) if on else None
        return pod(name, 8, on=on, placed=placed, phase="Running" if on else None, wants=wants)

    def test_the_rack_that_is_required_is_kept(self) -> None:
        """Another rack would be wrong, and one node is left in this one."""
        state = cluster(*self.hall(), self.member("p1", "required-rack", on="a1"))
        asked = self.member("p2", "required-rack")
        assert winners(state, asked, "a1", "a2", "b1", attempts=3) == ["a2"] * 3

    def test_a_rack_that_is_only_preferred_is_left(self) -> None:
        """A group that is split runs; one whose last pod is refused again and again does not."""
        state = cluster(*self.hall(), self.member("p1", "rack", on="a1"))
        assert winners(state, self.member("p2", "rack"), "a1", "a2", "b1", attempts=2) == ["a2", "b1"]


class TestTheNominatedNode:
    """kube-scheduler asks about it alone, and about the others when it is refused."""

    def test_is_passed_over_once_for_each_setback(self) -> None:
        """kube-scheduler may leave the nomination standing when it fails before the bind."""
        state = cluster(*map(node, SIX))
        asked = pod("p", 2, nominated="n1")
        assert winner(state, asked, "n1") == "n1"
        answer = filter_nodes(state, args(asked, "n1"), at(2.0))
        assert answer.failed_nodes == {"n1": STEPS_BACK}
        assert winner(state, asked, *SIX, now=2.0) == "n2"

    def test_is_taken_where_it_is_the_only_one_left(self) -> None:
        """The second call of the attempt is about the same node: nothing else fits."""
        state = cluster(node("n1"))
        asked = pod("p", 2, nominated="n1")
        calls = [winner(state, asked, "n1", now=now) for now in (0.0, 2.0, 2.0, 6.0, 6.0)]
        assert calls == ["n1", None, "n1", None, "n1"]


class TestPodsOfOneOwner:
    """The kubelet refuses a pod for good, and a controller makes another one."""

    def made(self, name: str, on: str | None = None, phase: str | None = None, **more: Any) -> Pod:
        found = pod(name, 2, on=on, phase=phase, version=2 if on else 1, **more)
        owner = [OwnerReference("job-1", controller=True), OwnerReference("somebody", controller=False)]
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, owner_references=owner))

    def test_the_next_pod_goes_elsewhere(self) -> None:
        """It has another UID, and the same owner."""
        state = cluster(*map(node, SIX), self.made("p1"))
        state.pods.changed(self.made("p1", "n1", "Failed"))
        assert winner(state, pod("of-nobody", 2), *SIX) == "n1"
        state.holds.release("of-nobody")
        assert winner(state, self.made("p2"), *SIX) == "n2"

    def test_one_refusal_counts_once(self) -> None:
        """A failed pod is heard of for as long as it exists."""
        state = cluster(*map(node, SIX), self.made("p1"))
        for seconds in (0.0, 31.0):
            state.pods.changed(self.made("p1", "n1", "Failed"))
            found = winner(state, self.made("p2"), *SIX, now=seconds)
            state.pods.deleted(self.made("p2"))
        assert found == "n1"

    def test_what_failed_before_we_came_is_long_ago(self) -> None:
        """The first list has failed pods of any age."""
        state = ClusterState()
        state.nodes.replaced([*map(node, SIX)])
        PodFeed(state).replaced([self.made("p1", "n1", "Failed")])
        state.pods.changed(self.made("p1", "n1", "Failed"))
        assert winner(state, self.made("p2"), *SIX) == "n1"

    def test_only_its_own_namespace_can_name_an_owner(self) -> None:
        """A reference is what somebody says."""
        state = cluster(*map(node, SIX), self.made("p1"))
        forged = self.made("p1", "n1", "Failed")
        elsewhere = msgspec.structs.replace(forged.metadata, namespace="other", uid="forged", name="forged")
        state.pods.changed(msgspec.structs.replace(forged, metadata=elsewhere))
        assert winner(state, self.made("p2"), *SIX) == "n1"

    @pytest.mark.parametrize("more", [{"terminated": True}, {"terminated": False}, {"deleting": True}])
    def test_a_pod_that_has_started_or_was_to_go_says_nothing_of_the_node(self, more: dict[str, bool]) -> None:
        """Programs crash, and people change their minds."""
        state = cluster(*map(node, SIX), self.made("p1"))
        state.pods.changed(self.made("p1", "n1", "Failed", **more))
        assert winner(state, self.made("p2"), *SIX) == "n1"


class TestMemory:
    """How long, and of how much."""

    def test_a_node_steps_back_for_twice_as_long_each_time(self) -> None:
        """30 seconds, then a minute, up to eight; all is forgiven when it was well for as long again."""
        setbacks = Setbacks()
        now, lengths = 0.0, []
        for _ in range(6):
            setbacks.fail("p", "n1", now)
            until = next(after for after in range(1000) if not setbacks.away("p", "", now + after))
            lengths.append(until)
            now += until
        assert lengths == [30, 60, 120, 240, 480, 480]
        setbacks.fail("p", "n1", now + 480.0)
        assert not setbacks.away("p", "", now + 480.0 + 30.0)

    @pytest.mark.parametrize("now", [0.0, 0.4])
    def test_a_pod_that_is_back_at_once_is_in_the_same_attempt(self, now: float) -> None:
        """kube-scheduler waits a second at least; the placements of a pod group are tried on one after the other."""
        state = cluster(*map(node, SIX))
        assert [winner(state, pod("p", 2), *SIX, now=at_seconds) for at_seconds in (0.0, now)] == ["n1", "n1"]

    def test_a_pod_that_keeps_coming_back_at_once_is_given_another_node_in_the_end(self) -> None:
        """It is the first time that counts."""
        assert "n2" in winners(cluster(*map(node, SIX)), pod("p", 2), *SIX, attempts=4, every=0.2)

    @pytest.mark.parametrize("last", [pod("p", 2, on="n1", version=2), None], ids=["bound", "gone"])
    def test_a_pod_that_is_bound_or_gone_is_forgotten(self, last: Pod | None) -> None:
        """Nothing is left of it."""
        state = cluster(*map(node, SIX), pod("p", 2))
        winners(state, pod("p", 2), *SIX, attempts=2)
        assert len(state.memory.setbacks) == 1
        if last:
            state.pods.changed(last)
        else:
            state.pods.deleted(pod("p", 2))
        assert len(state.memory.setbacks) == 0

    def test_a_bind_that_failed_because_of_the_pod_tells_nothing_of_the_node(self) -> None:
        """A pod that is being deleted would be refused anywhere."""
        world = World(*SIX)
        world.add_pod("p")
        replica = Replica(world)
        asked = msgspec.convert(world.find("p"), Pod)
        assert winner(replica.state, asked, *SIX) == "n1"
        world.patch(PODS, "p", {"metadata": {"annotations": {keys.MIN_BANDWIDTH: "much"}}})
        replica.catch_up()
        assert not isinstance(replica.bind("p"), Bound)
        assert winner(replica.state, asked, *SIX, now=2.0) == "n1"

    def test_pods_and_nodes_are_bounded(self) -> None:
        """The oldest are forgotten, and start with the best node again."""
        setbacks = Setbacks(limit=2)
        for uid in ("a", "b", "c"):
            setbacks.fail(uid, "n1", 0.0)
        assert [setbacks.away(uid, "", 1.0) for uid in ("a", "b", "c")] == [[], ["n1"], ["n1"]]
        for number in range(1000):
            setbacks.fail("c", f"m{number}", 0.0)
        assert set(setbacks.away("c", "", 1.0)) == {f"m{number}" for number in range(936, 1000)}
