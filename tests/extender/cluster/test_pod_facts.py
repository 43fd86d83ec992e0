"""Single facts about a pod: whether anything of it has started, whether it has place for a record, who published what."""

from __future__ import annotations

import msgspec
import pytest

from extender.cluster.candidates.shape import Shape
from extender.cluster.objects.gpu_pods import GpuPod, has_place_for_ours, has_stopped, read_gpu_pod, read_request
from extender.cluster.objects.kinds import Container, ContainerState, ContainerStatus, Pod, ResourceRequirements
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from tests.extender.builders import pod
from topology.annotations import keys
from topology.errors import RequestError
from topology.placement.verdict import Reason, Rejection
from topology.request.gpu_request import GpuRequest

WAITING, RUNNING = ContainerState(), ContainerState(running={})
TERMINATED = ContainerState(terminated={})
FULL = {"x": "y" * (256 * 1024 - 2_000)}


def with_statuses(main: ContainerState | None, init: ContainerState | None = None, phase: str = "Pending") -> GpuPod:
    """Return a pod that takes its own GPUs or none, with these states of its containers."""
    bare = pod("p", on="n1", phase=phase, wants={keys.DEVICE_MISMATCH: "refuse"})
    status = msgspec.structs.replace(
        bare.status,
        container_statuses=[ContainerStatus("main", main)] if main else None,
        init_container_statuses=[ContainerStatus("init", init)] if init else None,
    )
    found = read_gpu_pod(msgspec.structs.replace(bare, status=status))
    assert found
    return found


WHOLE = {"cpu": "4", "memory": "8Gi"}


@pytest.mark.parametrize(
    ("limits", "requests", "cpus"),
    [
        (WHOLE, None, 4),
        (WHOLE, WHOLE, 4),
        (WHOLE, {"cpu": "4000m", "memory": "8192Mi"}, 4),
        ({**WHOLE, "cpu": "3500m"}, None, 0),
        (WHOLE, {**WHOLE, "cpu": "2"}, 0),
        (WHOLE, {**WHOLE, "memory": "1Gi"}, 0),
        ({"cpu": "4"}, None, 0),
        ({**WHOLE, "memory": "much"}, None, 0),
    ],
)
def test_whole_cpus_are_those_of_guaranteed_pods(
    limits: dict[str, str | int], requests: dict[str, str | int] | None, cpus: int
) -> None:
    """A whole number of them, with memory, and no more allowed than asked for."""
    resources = ResourceRequirements({**limits, keys.GPU_RESOURCE: 2}, requests)
    bare = pod("p")
    spec = msgspec.structs.replace(bare.spec, containers=[Container("main", resources)])
    asked = read_request(msgspec.structs.replace(bare, spec=spec)).request
    assert sum(each.cpus for each in asked.by_container) == cpus
    beside = msgspec.structs.replace(spec, containers=[*spec.containers, Container("other")])
    assert not read_request(msgspec.structs.replace(bare, spec=beside)).request.by_container
    as_one = msgspec.structs.replace(spec, resources=ResourceRequirements(dict(WHOLE)))
    assert not read_request(msgspec.structs.replace(bare, spec=as_one)).request.by_container


@pytest.mark.parametrize(
    ("main", "init", "waits"),
    [
        (None, None, True),
        (WAITING, None, True),
        (WAITING, WAITING, True),
        (WAITING, RUNNING, False),
        (WAITING, TERMINATED, False),
        (None, TERMINATED, False),
        (RUNNING, None, False),
        (TERMINATED, None, False),
    ],
)
def test_a_pod_waits_for_its_own_gpus_until_any_container_has_started(
    main: ContainerState | None, init: ContainerState | None, *, waits: bool
) -> None:
    """An init container gets the GPUs first."""
    assert with_statuses(main, init).waits_for_its_own is waits


@pytest.mark.parametrize(
    ("main", "init", "phase", "stopped"),
    [
        (TERMINATED, None, "Succeeded", True),
        (TERMINATED, TERMINATED, "Failed", True),
        (TERMINATED, RUNNING, "Failed", False),
        (TERMINATED, None, "Running", False),
        (RUNNING, None, "Failed", False),
        (None, None, "Failed", False),
        (None, TERMINATED, "Failed", False),
    ],
)
def test_a_pod_has_stopped_if_all_that_ever_ran_of_it_says_so(
    main: ContainerState | None, init: ContainerState | None, phase: str, *, stopped: bool
) -> None:
    """A sidecar among the init containers may run on."""
    assert has_stopped(with_statuses(main, init, phase).pod) is stopped


def test_only_a_pod_with_gpus_needs_place_for_a_record() -> None:
    """Any other one may fill its annotations."""
    assert not has_place_for_ours(pod("p", wants=FULL))
    assert read_request(pod("p", 0, wants=FULL)).request.gpus == 0
    with pytest.raises(RequestError, match="leave no place"):
        read_request(pod("p", 1, wants=FULL))


@pytest.mark.parametrize(("over", "has_place"), [(0, True), (1, False)])
def test_place_for_a_record_and_a_fence_is_left_to_the_byte(over: int, *, has_place: bool) -> None:
    """The API server's cap is 256 KiB, a record's 32 KiB; bytes are counted, not letters."""
    most = 256 * 1024 - 32 * 1024 - 1024
    assert has_place_for_ours(pod("p", wants={"x": "y" * (most - 1 + over)})) is has_place
    assert has_place_for_ours(pod("p", wants={"ä": "ö" * ((most - 2) // 2), "": "z" * over})) is has_place


def test_what_we_write_ourselves_takes_no_place_from_us() -> None:
    """A record and a fence are written over."""
    own = {keys.PLACEMENT: "x" * 60_000, keys.FENCE: "y" * 200_000}
    assert has_place_for_ours(pod("p", wants=own))
    assert has_place_for_ours(msgspec.structs.replace(pod("p"), metadata=no_annotations(pod("p"))))


def no_annotations(item: Pod) -> object:
    return msgspec.structs.replace(item.metadata, annotations=None)


@pytest.mark.parametrize("field", ["limits", "requests"])
def test_who_names_the_resource_anywhere_is_kept_whole(field: str) -> None:
    """As a limit or as a request."""
    item = pod("p", on="n1")
    asked = item.spec.containers[0].resources
    only = msgspec.structs.replace(asked, limits=None, requests=None)
    only = msgspec.structs.replace(only, **{field: {keys.GPU_RESOURCE: 1}})
    container = msgspec.structs.replace(item.spec.containers[0], resources=only)
    spec = msgspec.structs.replace(item.spec, containers=[container])
    named = msgspec.structs.replace(item, spec=spec)
    inside = msgspec.structs.replace(
        item, spec=msgspec.structs.replace(spec, containers=[], init_containers=[container])
    )
    feed = PodFeed(ClusterState())
    assert feed.keep(named) == named
    assert feed.keep(inside) == inside
    beside = msgspec.structs.replace(
        item.spec.containers[0], name="sidecar", resources=msgspec.structs.replace(asked, limits=None, requests=None)
    )
    both = msgspec.structs.replace(item, spec=msgspec.structs.replace(spec, containers=[beside, container]))
    assert feed.keep(both) == both


def test_a_shape_without_a_topology_says_so() -> None:
    """Unless there is another reason, which then is the reason."""
    assert Shape(None, 0).decide(GpuRequest(1)) == Rejection(
        Reason.CLOSED, "no GPU topology is published", remedy="an agent has to run there"
    )
    assert Shape(None, 0, "closed").decide(GpuRequest(1)) == Rejection(
        Reason.CLOSED, "closed", remedy="see the log of the node's agent"
    )
