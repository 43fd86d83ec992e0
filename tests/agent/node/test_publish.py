"""Written when something changed, and else once per refresh interval; on virtual time, without an API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agent.node.look import Look
from agent.node.publish import TOO_LARGE, TOO_MANY_HOLDERS, Publication
from agent.plugin.devices.offers import SHARED
from tests.agent.builders import discovery
from topology.annotations import keys
from topology.annotations.codec import decode_topology, digest
from topology.annotations.records import ClaimUser, Holder, Observed, Sharer, decode_observed
from topology.annotations.status_codec import decode_status
from topology.node.offers import OfferForm, ResourceOffer
from topology.node.slices import MAX_DEVICES
from topology.node.status import DevicePluginStatus, Mode, NodeGpuStatus

REFRESH = 300.0


class Node:
    """A publication and the annotations that it leads to; every write succeeds."""

    def __init__(
        self, annotations: Mapping[str, str] | None = None, random: float = 0.5, version: str = "0.1.0"
    ) -> None:
        self.annotations = dict(annotations or {})
        self.publication = Publication(lambda: random, REFRESH, version)
        self.publication.learned(self.annotations, now=0.0)
        self.writes = 0

    def turn(self, now: float, **parts: object) -> set[str]:
        """Publish a discovery at a time and return the keys that were written."""
        patch = self.publication.patch(discovery(**parts), now)  # type: ignore[arg-type]
        if patch is None:
            return set()
        self.annotations |= patch.annotations
        self.publication.learned(self.annotations, now)
        self.writes += 1
        return set(patch.annotations)

    @property
    def status(self) -> NodeGpuStatus:
        return decode_status(self.annotations[keys.STATUS])


ALL = {keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS}


def test_first_write_holds_topology_digest_and_status() -> None:
    """What readers find decodes, and the digest is the topology's."""
    node = Node()
    assert node.turn(0.0) == ALL
    assert decode_topology(node.annotations[keys.TOPOLOGY]) == discovery().topology
    assert node.annotations[keys.TOPOLOGY_DIGEST] == digest(node.annotations[keys.TOPOLOGY])
    assert node.status.generation == 1


def test_nothing_is_written_when_nothing_changes() -> None:
    """Ten discoveries, one write."""
    node = Node()
    for now in range(0, 299, 30):
        node.turn(float(now))
    assert node.writes == 1


def test_refresh_comes_after_its_interval_and_grows_the_generation() -> None:
    """Only the status, and only its generation: so readers see that the agent lives."""
    node = Node()
    node.turn(0.0)
    assert node.turn(299.9) == set()
    assert node.turn(300.0) == {keys.STATUS}
    assert node.status.generation == 2


@pytest.mark.parametrize(("random", "due"), [(0.0, 270.0), (0.5, 300.0), (1.0, 330.0)])
def test_refresh_is_spread_by_a_tenth(random: float, due: float) -> None:
    """Thousands of nodes that start together do not write together for ever."""
    node = Node(random=random)
    node.turn(0.0)
    assert node.turn(due - 0.1) == set()
    assert node.turn(due + 0.1) == {keys.STATUS}


def test_an_hour_without_a_change_costs_twelve_writes() -> None:
    """One per five minutes, besides the first."""
    node = Node()
    for now in range(0, 3601, 15):
        node.turn(float(now))
    assert node.writes == 1 + 12


def test_change_of_health_is_written_at_once_and_leaves_the_topology_alone() -> None:
    """The large annotation is not sent again."""
    node = Node()
    node.turn(0.0)
    assert node.turn(1.0, healthy=False) == {keys.STATUS}
    assert node.status.unhealthy == {"GPU-0", "GPU-1"}


def test_change_of_topology_is_written_with_its_digest() -> None:
    """A claim is made against a digest, so both change together."""
    node = Node()
    node.turn(0.0)
    assert node.turn(1.0, gpus=3) == ALL


def test_start_writes_nothing_that_stands_there_already() -> None:
    """A rollout of the agent over a thousand nodes must not rewrite a thousand nodes."""
    before = Node()
    before.turn(0.0)
    assert Node(before.annotations).turn(0.0) == set()


@pytest.mark.parametrize(("old", "new"), [("", "0.2.0"), ("0.1.0", "0.2.0"), ("0.2.0", "0.1.0"), ("0.2.0", "")])
def test_another_version_goes_with_the_next_write(old: str, new: str) -> None:
    """Upgrades, and ways back, rewrite no node at once, from and to agents that do not say theirs."""
    before = Node(version=old)
    before.turn(0.0)
    after = Node(before.annotations, version=new)
    assert [after.turn(now) for now in (0.0, 299.0, 300.0)] == [set(), set(), {keys.STATUS}]
    assert (before.status.agent_version, after.status.agent_version) == (old, new)


def test_generation_goes_on_after_a_restart() -> None:
    """It never falls, or readers would take the new agent for an old message."""
    before = Node()
    before.turn(0.0)
    before.turn(300.0)
    after = Node(before.annotations)
    after.turn(1.0, healthy=False)
    assert after.status.generation == 3


@pytest.mark.parametrize("key", [keys.TOPOLOGY, keys.TOPOLOGY_DIGEST, keys.STATUS])
@pytest.mark.parametrize("damage", [None, "", "{}", '{"v":2}'])
def test_whatever_somebody_did_to_our_annotations_is_put_right(key: str, damage: str | None) -> None:
    """Removed, emptied, broken, or written by a newer agent that was rolled back."""
    node = Node()
    node.turn(0.0)
    if damage is None:
        del node.annotations[key]
    else:
        node.annotations[key] = damage
    node.publication.learned(node.annotations, now=1.0)
    assert key in node.turn(2.0)
    assert decode_topology(node.annotations[keys.TOPOLOGY]) == discovery().topology


def test_oversized_topology_keeps_the_old_one() -> None:
    """The old value and its digest stand, the status says why, and that is written once."""
    node = Node()
    node.turn(0.0)
    before = dict(node.annotations)
    assert node.turn(1.0, gpus=64, reason="a reason that differs for every pair") == {keys.STATUS}
    assert node.annotations[keys.TOPOLOGY] == before[keys.TOPOLOGY]
    assert node.status.reasons == (TOO_LARGE,)
    assert node.turn(2.0, gpus=64, reason="a reason that differs for every pair") == set()


def test_sharers_that_are_too_many_to_be_told_close_the_node() -> None:
    """Pods that came around the scheduler have no ledger to bound them: nothing is said of who holds what, once, and why."""
    node = Node()
    node.turn(0.0)
    uuid = discovery().topology.gpus[0].uuid
    sharers = tuple(Sharer("ml", f"notebook-{number:0>200}", "main", 1) for number in range(200))
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=True)
    look = Look(plugin, {uuid: Holder("ml", sharers[0].name, "main")}, shared={uuid: sharers})
    patch = node.publication.patch(discovery(), 1.0, look)
    assert patch is not None
    assert patch.annotations.keys() == {keys.STATUS}
    said = decode_status(patch.annotations[keys.STATUS]).device_plugin
    assert said == replace(plugin, ready=False, reasons=(TOO_MANY_HOLDERS,))
    node.publication.learned({**node.annotations, **patch.annotations}, 1.0)
    assert node.publication.patch(discovery(), 2.0, look) is None


def test_slices_of_many_cuts_that_are_too_many_to_be_told_close_the_node() -> None:
    """Containers may hold slices that are gone beside all that there are."""
    node = Node()
    node.turn(0.0)
    plugin = DevicePluginStatus(Mode.ENFORCE, ready=True)
    look = Look(plugin, {f"MIG-{number}": Holder("ml", f"p{number}", "main") for number in range(MAX_DEVICES + 1)})
    patch = node.publication.patch(discovery(), 1.0, look)
    assert patch is not None
    assert decode_status(patch.annotations[keys.STATUS]).device_plugin == replace(
        plugin, ready=False, reasons=(TOO_MANY_HOLDERS,)
    )


def users(count: int) -> tuple[ClaimUser, ...]:
    """Return containers, each with eight devices by a claim of its own."""
    devices = tuple(f"gpu-{minor}" for minor in range(8))
    return tuple(
        ClaimUser("ml", f"p{number:03}", "main", f"p{number:03}-gpus", "n1", devices) for number in range(count)
    )


@pytest.mark.parametrize(("count", "is_told_whole"), [(2, True), (100, True), (400, False)])
def test_containers_with_devices_of_claims_are_told_as_far_as_there_is_room(count: int, is_told_whole: bool) -> None:
    """Any number of pods may use one claim. The others are left out: the claim itself tells that its devices are held."""
    node = Node()
    node.turn(0.0)
    plugin = DevicePluginStatus(Mode.OBSERVE, ready=True)
    look = Look(plugin, {"GPU-0": Holder("ml", "p", "main")}, claimed=users(count))
    patch = node.publication.patch(discovery(), 1.0, look)
    assert patch is not None
    observed = decode_observed(patch.annotations[keys.OBSERVED])
    assert observed.gpus == look.held and set(observed.claimed) <= set(look.claimed)
    assert len(observed.claimed) > 100 if not is_told_whole else observed.claimed == look.claimed
    assert decode_status(patch.annotations[keys.STATUS]).device_plugin == plugin
    node.publication.learned({**node.annotations, **patch.annotations}, 1.0)
    assert node.publication.patch(discovery(), 2.0, look) is None


def test_nothing_is_written_before_the_api_has_said_what_it_holds() -> None:
    """Or every start would be a write."""
    assert Publication(lambda: 0.5, REFRESH).patch(discovery(), 0.0) is None


def test_failures_make_pauses_that_grow_to_a_bound() -> None:
    """5, 10, 20 … 120 seconds, half of it by chance; one success forgets them all."""
    publication = Publication(lambda: 1.0, REFRESH)
    pauses = []
    now = 0.0
    for _ in range(7):
        publication.failed(now)
        start, now = now, next(t for t in (now + 0.5 * n for n in range(1000)) if publication.may_ask(t))
        pauses.append(now - start)
    assert pauses == [5, 10, 20, 40, 80, 120, 120]
    publication.learned({}, now)
    assert publication.may_ask(now)


def test_days_without_an_api_server_end_no_agent() -> None:
    """Powers of two outgrow a float after 1024 failures, which are a day; the pause stays at its bound."""
    publication = Publication(lambda: 1.0, REFRESH)
    for _ in range(2000):
        publication.failed(now=0.0)
    assert publication.pause_seconds(0.0) == 120.0


def test_no_write_during_a_pause() -> None:
    """Also when something changes: the API server asked for rest."""
    node = Node()
    node.publication.failed(now=10.0)
    assert node.turn(11.0) == set()
    assert not node.publication.may_ask(11.0)
    assert node.publication.may_ask(20.0)


def test_after_a_failure_the_node_is_read_before_it_is_written_again() -> None:
    """The write may have happened, and may yet; what rests on an outdated status would be refused for ever."""
    node = Node()
    node.publication.failed(now=10.0)
    assert not node.publication.is_known
    assert node.turn(20.0) == set()
    node.publication.learned(node.annotations, now=20.0)
    assert node.turn(20.0) == ALL


def test_reading_again_does_not_put_off_a_write_that_is_due() -> None:
    """Readers count from the last write, and would take the agent for silent."""
    node = Node()
    node.turn(0.0)
    node.publication.failed(now=2 * REFRESH)
    node.publication.learned(node.annotations, now=2 * REFRESH + 10)
    assert node.turn(2 * REFRESH + 11) == {keys.STATUS}


def test_last_discovery_is_what_was_published() -> None:
    """A new process begins with what the old one knew, and with nothing where that cannot be read."""
    node = Node()
    node.turn(0.0, healthy=False)
    assert Node(node.annotations).publication.last_discovery().topology == discovery().topology
    assert Node(node.annotations).publication.last_discovery().status.unhealthy == {"GPU-0", "GPU-1"}
    assert Node({keys.TOPOLOGY: "nonsense"}).publication.last_discovery().topology.gpus == ()


HOLDER = Holder("ml", "train-0", "main")


def look(held: Mapping[str, Holder] | None, *, ready: bool = True) -> Look:
    """Return what is seen of the kubelet."""
    return Look(DevicePluginStatus(Mode.OBSERVE, ready), held)


class SeeingNode(Node):
    """A node whose kubelet is looked at."""

    def sees(
        self, now: float, held: Mapping[str, Holder] | None, *, ready: bool = True, computing: int = 0
    ) -> set[str]:
        """Publish, and return the keys that were written."""
        found = replace(discovery(), computing={"GPU-1": computing} if computing else {})
        patch = self.publication.patch(found, now, look(held, ready=ready))
        if patch is None:
            return set()
        self.annotations |= patch.annotations
        self.publication.learned(self.annotations, now)
        return set(patch.annotations)

    @property
    def observed(self) -> Observed:
        return decode_observed(self.annotations[keys.OBSERVED])


def test_holder_is_published_on_change_and_names_its_status() -> None:
    """So readers know which look a write rests on."""
    node = SeeingNode()
    assert node.sees(0.0, {}) == ALL | {keys.OBSERVED}
    assert node.sees(1.0, {}) == set()
    assert node.sees(2.0, {"GPU-0": HOLDER}) == {keys.STATUS, keys.OBSERVED}
    assert (node.observed.gpus, node.observed.generation) == ({"GPU-0": HOLDER}, node.status.generation)


def test_refresh_says_again_what_is_held() -> None:
    """A GPU that nobody holds is free only by a look that is young enough."""
    node = SeeingNode()
    node.sees(0.0, {"GPU-0": HOLDER})
    assert node.sees(301.0, {"GPU-0": HOLDER}) == {keys.STATUS, keys.OBSERVED}
    assert node.observed.generation == node.status.generation == 2


def test_look_that_failed_proves_nothing() -> None:
    """The status goes on, and what was observed keeps the generation of its own look."""
    node = SeeingNode()
    node.sees(0.0, {"GPU-0": HOLDER})
    assert node.sees(1.0, None, ready=False) == {keys.STATUS}
    assert (node.observed.generation, node.status.generation) == (1, 2)
    assert node.status.device_plugin == DevicePluginStatus(Mode.OBSERVE, ready=False)


def test_what_the_device_plugin_withholds_is_given_to_nobody() -> None:
    """With the reason, beside those that NVML knows."""
    node = Node()
    seen = replace(look({}), withheld={"GPU-0": SHARED}, offers={"GPU-0": (), "GPU-1": ()})
    found = discovery()
    doubted = replace(found.status, gpus=tuple(replace(gpu, doubtful=True) for gpu in found.status.gpus))
    patch = node.publication.patch(replace(found, status=doubted), 0.0, seen)
    assert patch is not None
    first, second = decode_status(patch.annotations[keys.STATUS]).gpus[:2]
    assert (first.healthy, first.doubtful, first.reasons[-1]) == (False, False, SHARED)
    assert (second.healthy, second.doubtful) == (True, True)


def test_what_was_withheld_stays_so_until_the_device_plugin_is_seen_again() -> None:
    """An agent that starts anew may find a kubelet that does not answer, or a plugin that is not there yet."""
    node, offers = Node(), {"GPU-0": (ResourceOffer("nvidia.com/gpu", OfferForm.SHARED, 2),), "GPU-1": ()}
    first = node.publication.patch(discovery(), 0.0, replace(look({}), withheld={"GPU-0": SHARED}, offers=offers))
    assert first is not None
    anew = Node(first.annotations)
    second = anew.publication.patch(discovery(), 1.0, look(None, ready=False))
    assert second is not None
    told = decode_status(second.annotations[keys.STATUS]).gpus[0]
    assert (told.healthy, told.reasons[-1], told.offers) == (False, SHARED, offers["GPU-0"])
    whole = (ResourceOffer("nvidia.com/gpu", OfferForm.WHOLE),)
    third = anew.publication.patch(discovery(), 2.0, replace(look({}), offers={"GPU-0": whole, "GPU-1": whole}))
    assert third is not None
    assert decode_status(third.annotations[keys.STATUS]).gpus[0].healthy


def test_slice_that_is_not_offered_is_closed_by_itself() -> None:
    """NVML says nothing of its health: the status names it by its own UUID, and the others are not mentioned."""
    seen = replace(look({}), withheld={"MIG-a": "not offered by the device plugin"}, offers={})
    patch = Node().publication.patch(discovery(), 0.0, seen)
    assert patch is not None
    status = decode_status(patch.annotations[keys.STATUS])
    assert status.unhealthy == {"MIG-a"}
    assert [gpu.reasons for gpu in status.gpus if gpu.uuid == "MIG-a"] == [("not offered by the device plugin",)]


def test_who_computes_without_a_container_is_named() -> None:
    """On a GPU that a container holds it is that container's business."""
    node = SeeingNode()
    node.sees(0.0, {"GPU-0": HOLDER}, computing=2)
    assert node.observed.foreign_processes == {"GPU-1": 2}
    assert node.sees(1.0, {"GPU-1": HOLDER}, computing=2) == {keys.STATUS, keys.OBSERVED}
    assert node.observed.foreign_processes == {}
