"""What a release waits for: an unknown pod some seconds, and an agent no longer than it has to."""

from __future__ import annotations

from extender.binding.intents import AskForLook, Intent, NoAnswer, Reply
from extender.binding.release import Task
from tests.extender.releases import bound, due
from tests.extender.world import Replica


def test_a_pod_that_is_not_in_the_cache_is_not_looked_up_at_once() -> None:
    """The claim may have been heard of before its pod was; a live read for each of them would be for nothing."""
    world, _ = bound("p")
    uid = next(iter(world.claims().values()))
    world.delete("p", grace_period_seconds=0)
    replica = Replica(world)
    task = Task("n1", unseen=frozenset({(uid, "default", "p")}))
    found = []
    for seconds in (0.0, 4.9, 5.0, 9.9, 10.0):
        replica.seconds = seconds
        found.append(due(replica))
    assert found == [[], [], [task], [], [task]]


def test_an_agent_that_cannot_be_asked_frees_what_its_second_report_shows_free() -> None:
    """Each attempt to ask it looks at the node anew, and none of them moves what its reports are compared with."""
    world, replica = bound("p")

    def nobody_is_asked(intent: Intent) -> Reply:
        return NoAnswer("lost") if isinstance(intent, AskForLook) else world.execute(intent)

    world.delete("p", grace_period_seconds=0)
    for report in (1, 2):
        replica.reconcile(execute=nobody_is_asked)
        assert len(world.claims()) == 2
        world.report("n1", report)
    replica.reconcile(execute=nobody_is_asked)
    assert world.claims() == {}
