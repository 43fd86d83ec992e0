"""U1, U2: extenders of this version and the next one at work together, as far as one version of the records can show it.

The next version may have keys of its own beside ours and still write version 1, as long as it can do without them: who does not
know them passes them over, and leaves them out of what he writes. A ledger of version 2 is closed to us, and we do not touch it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import msgspec

from benchmarks.simulated.double.resources import NODES
from extender.binding.intents import Intent, Reply, SwapLedger
from extender.binding.outcome import Bound, NotBound
from tests.extender.binding.test_protocol import DELIVERIES
from tests.extender.exploration import Choices, explore
from tests.extender.four_gpus import kinds, owners, world_of
from tests.extender.world import Crash, Replica, World, deliver, drive
from topology.annotations import keys


def as_the_next_version(intent: Intent) -> Intent:
    """Write what the next version might: keys that we have never heard of, in the ledger and in each claim."""
    if not isinstance(intent, SwapLedger):
        return intent
    ledger = msgspec.json.decode(intent.ledger)
    claims = [{**claim, "slice": {"profile": "1g.10gb"}} for claim in ledger["claims"]]
    text = msgspec.json.encode({**ledger, "claims": claims, "written_by": "next"}).decode()
    return replace(intent, ledger=text)


def ledger_of(world: World) -> str:
    """Return the text of n1's ledger."""
    return str(world.store.get(NODES, "", "n1")["metadata"]["annotations"][keys.LEDGER])


def put_ledger(world: World, text: str) -> None:
    """Have somebody else write n1's ledger."""
    world.patch(NODES, "n1", {"metadata": {"annotations": {keys.LEDGER: text}}})


def test_u1_two_versions_bind_and_release_by_turns() -> None:
    """Neither takes a GPU of the other's pods, and each takes back claims that the other has written."""
    world = world_of()
    ours, next_one = Replica(world), Replica(world)
    for number, name in enumerate("pqrs"):
        world.add_pod(name, 1)
        replica = (ours, next_one)[number % 2]
        replica.catch_up()
        is_next = replica is next_one
        execute = (lambda intent: world.execute(as_the_next_version(intent))) if is_next else world.execute
        assert isinstance(drive(replica.start_bind(name), execute), Bound)
        assert ("slice" in ledger_of(world)) is is_next
    assert sorted(map(len, owners(world).values())) == [1, 1, 1, 1]
    world.set_status("s", "Succeeded", "terminated")
    ours.reconcile()
    assert set(owners(world)) == {"p", "q", "r"}


def test_u2_this_version_goes_on_wherever_the_next_one_was_stopped() -> None:
    """Back at any point: whatever request was lost, late or answered in vain, nothing has to be done by hand."""

    def run(choices: Choices) -> None:
        world = world_of("before")
        for name in ("p", "q"):
            world.add_pod(name, 1)

        def execute(intent: Intent) -> Reply:
            return deliver(world, choices.choose(DELIVERIES), as_the_next_version(intent))

        with suppress(Crash):
            drive(Replica(world).start_bind("p"), execute)
        ours = Replica(world)
        for name in ("q", "p"):
            world.deliver_late()
            ours.reconcile(rounds=2)
            assert isinstance(ours.bind(name), Bound)
        assert sorted(map(len, owners(world).values())) == [1, 1, 2]
        world.check()

    assert explore(run, faults=1) > 10


def test_u2_a_ledger_of_version_2_is_left_alone_until_it_is_one_of_version_1() -> None:
    """Whoever goes back before all wrote version 1 again finds nodes closed, and nothing on them lost."""
    world = world_of("p")
    before, text = world.claims(), ledger_of(world)
    world.add_pod("q", 1)
    with world.unchecked():
        put_ledger(world, text.replace('"v":1', '"v":2'))
        ours = Replica(world)
        world.intents.clear()
        ours.reconcile()
        outcome = ours.bind("q")
        assert isinstance(outcome, NotBound)
        assert "version that is not understood" in outcome.message
        assert kinds(world) == []
        put_ledger(world, text)
    ours.catch_up()
    assert isinstance(ours.bind("q"), Bound)
    assert before.items() < world.claims().items()
