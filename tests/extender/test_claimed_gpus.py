"""Nothing is planned on GPUs that ResourceClaims hold, in any verb, and people are told which."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from extender.binding.intents import SwapLedger
from extender.binding.outcome import Failure, NotBound
from extender.cluster.candidates.openness import CLAIMS_UNHEARD, UNKNOWN_DEVICE
from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.inspect.status import status
from extender.inspect.why import why
from extender.telemetry.gauges import gauges_of
from tests.dra import Json, allocated, gpu, read_claim, read_slice, resource_slice, waiting
from tests.extender.builders import at, claim, cluster, free, gpus, node, pod, running
from tests.extender.world import Replica, World, drive, meddle_before
from topology.formats.catalog import machine

ALL = tuple(range(8))
G = gpus("n1", *ALL)
TAINT = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}


def publish(state: ClusterState, uuids: Sequence[str] = G, node_name: str = "n1", *more: Json) -> None:
    """Let NVIDIA's driver publish a node's GPUs, and be heard."""
    devices = [gpu(minor, uuid) for minor, uuid in enumerate(uuids)]
    state.claims.slices.changed(read_slice(resource_slice(node_name, [*devices, *more])))
    state.claims.hear(True)


def beside(*claims: Json, slices: bool = True, claimed: tuple[str, ...] = ()) -> ClusterState:
    """Return two nodes of eight GPUs, with claims on the first one's, of which some are a pod's."""
    own = tuple(claim(uuid, "train") for uuid in claimed)
    state = cluster(node("n1", claims=own), node("n2"), *([running("train", "n1", *claimed)] if claimed else []))
    if slices:
        publish(state)
    for each in claims:
        state.claims.changed(read_claim(each))
    state.claims.hear(True)
    return state


def test_a_held_gpu_is_not_free_until_its_claim_lets_go() -> None:
    """The node stays open for all its other GPUs."""
    state = beside(allocated("job", "n1", "gpu-2", "gpu-5"))
    assert (free(state), state.views["n1"].shape.closed) == ((0, 1, 3, 4, 6, 7), None)
    assert free(state, "n2") == ALL
    state.claims.changed(read_claim(waiting("job")))
    assert free(state) == ALL


def test_preemption_does_not_count_on_a_held_gpu() -> None:
    """No victim of ours could free it."""
    assert beside(allocated("job", "n1", "gpu-2")).views["n1"].fit == 0b11111011


@pytest.mark.parametrize(
    ("claims", "slices", "why_closed"),
    [
        ((allocated("job", "n1", "gpu-2"),), False, UNKNOWN_DEVICE),
        ((allocated("vm", "n1", "gpu-vfio-0"),), True, UNKNOWN_DEVICE),
        ((allocated("job", "n1", "gpu-2"),), True, None),
        ((), True, None),
    ],
)
def test_what_may_be_any_gpu_closes_that_node_alone(
    claims: tuple[Json, ...], slices: bool, why_closed: str | None
) -> None:
    """A missing slice, or a device without a UUID."""
    state = beside(*claims, slices=slices)
    assert [state.views[name].shape.closed for name in ("n1", "n2")] == [why_closed, None]


def test_a_uuid_that_the_node_does_not_have_is_no_match() -> None:
    """Somebody is wrong about which GPU that is, so it may be any."""
    state = beside(allocated("job", "n1", "gpu-0"), slices=False)
    publish(state, ["GPU-of-nobody"])
    assert state.views["n1"].shape.closed == UNKNOWN_DEVICE


def test_silence_closes_nodes_with_devices_and_no_others() -> None:
    """What claims hold there may have changed since."""
    state = beside()
    state.claims.hear(False)
    assert [state.views[name].shape.closed for name in ("n1", "n2")] == [CLAIMS_UNHEARD, None]
    state.claims.hear(True)
    assert state.views["n1"].shape.closed is None


def test_a_gpu_that_its_driver_keeps_pods_off_is_not_free() -> None:
    """Its taint is the reason."""
    state = beside(slices=False)
    state.claims.slices.changed(read_slice(resource_slice("n1", [gpu(0, G[3], TAINT)])))
    found = inspection.node(state, "n1", at())
    assert found is not None
    assert (free(state), found.gpus[3].line) == (
        (0, 1, 2, 4, 5, 6, 7),
        "tainted by its DRA driver: gpu.nvidia.com/xid=79:NoSchedule",
    )


def test_people_are_told_which_claim_holds_a_gpu() -> None:
    """Of many that share one the first are named."""
    shared = [allocated(f"job-{number}", "n1", "gpu-1", share=str(number)) for number in range(5)]
    found = inspection.node(beside(*shared), "n1", at())
    assert found is not None
    assert found.gpus[1].state == "unplanned"
    assert found.gpus[1].line == "held by ResourceClaim ml/job-0, ml/job-1, ml/job-2 and 2 more"
    assert [gpu.state for gpu in found.gpus].count("free") == 7


def test_people_are_told_which_claim_closes_a_node() -> None:
    """With the device as its driver calls it."""
    state = beside(allocated("vm", "n1", "gpu-vfio-0"))
    found = inspection.node(state, "n1", at())
    assert found is not None
    assert [each.line for each in found.unknown_devices] == [
        "ResourceClaim ml/vm holds gpu-vfio-0, and nobody tells which GPU that is"
    ]
    assert any(UNKNOWN_DEVICE in finding.what for finding in status(state).findings)


def test_why_names_the_gpus_that_claims_hold() -> None:
    """Else a pod that needs eight is told of seven, and nobody knows where the last one is."""
    state = beside(allocated("job", "n1", "gpu-2"))
    state.pods.changed(pod("p", 8))
    told = why(state, "ml", "p", at(), node="n1", limit=1)
    assert told is not None
    assert told.nodes[0].figures == "7 of 8 are free, pod needs 8; GPU 2: held by ResourceClaim ml/job"


def test_a_gpu_that_a_pod_has_as_well_is_a_conflict() -> None:
    """Two planners for one node; the ledger stays, and people are told."""
    state = beside(allocated("job", "n1", "gpu-2"), claimed=(G[2],))
    found = inspection.node(state, "n1", at())
    assert found is not None
    assert (found.gpus[2].state, found.gpus[2].pod) == ("conflict", "ml/train")
    assert gauges_of(state)["gpus_in_conflict"] == 1
    assert any("a pod and a ResourceClaim have one GPU" in finding.what for finding in status(state).findings)


def test_status_says_that_claims_may_not_be_read() -> None:
    """And nothing else comes of it."""
    state = cluster(node("n1"))
    state.claims.trouble = "the account may not"
    assert any("the account may not" in finding.what for finding in status(state).findings)
    assert free(state) == ALL


class TestBind:
    """A claim may be given its GPUs at any moment before the Binding is sent."""

    uuids = tuple(gpu.uuid for gpu in machine("rtx-3090-2", host="n1").gpus)

    def hold(self, replica: Replica, position: int) -> Callable[[], None]:
        def meddle() -> None:
            publish(replica.state, self.uuids)
            replica.state.claims.changed(read_claim(allocated("job", "n1", f"gpu-{position}")))

        return meddle

    @pytest.mark.parametrize("position", [0, 1])
    def test_between_filter_and_bind(self, position: int) -> None:
        """The pod gets the other GPU."""
        world = World()
        world.add_pod("p", 1)
        replica = Replica(world)
        self.hold(replica, position)()
        replica.bind("p")
        assert world.placed("p") == {self.uuids[1 - position]}

    @pytest.mark.parametrize("position", [0, 1])
    def test_while_we_claim(self, position: int) -> None:
        """What we have claimed meanwhile is given up again for the other GPU."""
        world = World()
        world.add_pod("p", 1)
        replica = Replica(world)
        drive(replica.start_bind("p"), meddle_before(world, SwapLedger, self.hold(replica, position)))
        assert world.placed("p") == {self.uuids[1 - position]}
        assert set(world.claims()) == {self.uuids[1 - position]}

    def test_where_no_other_gpu_is_left_the_pod_goes_elsewhere(self) -> None:
        """Nothing is bound on a GPU that is not ours to give."""
        world = World()
        world.add_pod("p", 2)
        replica = Replica(world)
        outcome = drive(replica.start_bind("p"), meddle_before(world, SwapLedger, self.hold(replica, 1)))
        assert isinstance(outcome, NotBound)
        assert outcome.failure is Failure.NO_FIT
        assert not world.placed("p")
