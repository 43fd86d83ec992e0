"""What a pod tells of itself."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.cluster.objects.gpu_pods import claims_for, has_stopped, read_gpu_pod, read_placement, read_request
from extender.cluster.objects.kinds import MAX_POD_BYTES, Pod
from extender.cluster.objects.parts import of_record, whole
from extender.kubernetes.documents import decoder
from tests.extender.builders import at, pod
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, encode_placement
from topology.bandwidth.predict import Bandwidth
from topology.errors import RequestError
from topology.node.links import Affinity


def asks(gpus: int, name: str, **more: str) -> dict[str, object]:
    return {"name": name, "resources": {"limits": {keys.GPU_RESOURCE: str(gpus)}}, **more}


def of_containers(init: list[dict[str, object]], *main: dict[str, object]) -> Pod:
    return msgspec.convert({"metadata": {"uid": "u"}, "spec": {"initContainers": init, "containers": list(main)}}, Pod)


def test_init_containers_use_the_gpus_of_those_that_follow() -> None:
    """A sidecar keeps its own: it starts among them and goes on running."""
    found = read_request(
        of_containers([asks(4, "setup"), asks(1, "proxy", restartPolicy="Always")], asks(2, "a"), asks(3, "b"))
    )
    assert found.request.gpus == 6
    shares = found.share_out(("g0", "g1", "g2", "g3", "g4", "g5"))
    assert shares == {"setup": ("g0", "g1", "g2", "g3"), "proxy": ("g0",), "a": ("g1", "g2"), "b": ("g3", "g4", "g5")}


@pytest.mark.parametrize(("count", "gpus"), [(95, 8), (257, 1)], ids=["too long", "too many containers"])
def test_a_pod_whose_placement_could_not_be_written_is_refused(count: int, gpus: int) -> None:
    """What is asked in turn fits a node; who has it in turn does not fit an annotation."""
    steps = [asks(gpus, f"step-{number}") for number in range(count)]
    with pytest.raises(RequestError, match=f"{count + 1} containers share the GPUs, no placement can name them all"):
        read_request(of_containers(steps, asks(gpus, "main")))


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(3, 63), st.sampled_from((1, 8, 16, 64))), max_size=4))
@example([(256, 63, 1)])
@example([(88, 63, 8)])
@example([(11, 63, 64)])
def test_what_is_not_refused_can_be_written(alike: list[tuple[int, int, int]]) -> None:
    """Whatever containers a pod has: it is refused when it is read, or its record fits, with the longest that goes with it."""
    steps = [(length, gpus) for times, length, gpus in alike for _ in range(times)]
    named = [asks(gpus, f"{number:03}".ljust(length, "x")) for number, (length, gpus) in enumerate(steps)]
    try:
        request = read_request(of_containers(named))
    except RequestError:
        return
    shares = request.share_out([f"GPU-{number:036}" for number in range(request.request.gpus)])
    rate = 1.2345678901234567e-100
    widest = Bandwidth(rate, rate, rate, measured=True)
    encode_placement(PlacementRecord(shares, max(Affinity, key=len), widest, 2**63 - 1))


def test_a_gpu_is_claimed_by_the_container_that_keeps_it() -> None:
    """An init container only borrows it."""
    record = PlacementRecord({"setup": ("g1", "g0"), "main": ("g1",)})
    setup = [("setup", True), ("main", False)]
    claims = claims_for(pod("p", version=7), of_record(record, setup))
    assert [(claim.gpu, claim.container, claim.resource_version) for claim in claims] == [
        ("g0", "setup", "7"),
        ("g1", "main", "7"),
    ]


@pytest.mark.parametrize(("word", "exact"), [("refuse", True), ("adopt", False)])
def test_a_claim_tells_the_node_whether_other_gpus_would_do(word: str, exact: bool) -> None:
    """The node's agent may not read pods."""
    (claim,) = claims_for(pod("p", wants={keys.DEVICE_MISMATCH: word}), whole({"g0": "main"}))
    assert claim.exact is exact


def test_another_resource_can_be_meant() -> None:
    """Its name is configurable; GPUs of the usual name are somebody else's then."""
    assert read_gpu_pod(pod("p", 2), "example.com/gpu") is None
    with pytest.raises(RequestError):
        read_request(pod("p", "2.5"))


@pytest.mark.parametrize("text", ["", "{", '{"v":2,"containers":{}}', '{"v":1,"containers":{"main":"GPU-1"}}'])
def test_a_record_that_cannot_be_read_is_none(text: str) -> None:
    """Whoever wrote it, nobody knows what the pod holds."""
    forged = pod("p", on="n1", wants={keys.PLACEMENT: text})
    assert read_placement(forged) is None
    found = read_gpu_pod(forged)
    assert found is not None
    assert found.placed is None


@pytest.mark.parametrize(
    ("found", "stopped"),
    [
        (pod(phase="Running", terminated=False), False),
        (pod(phase="Running", terminated=True), False),
        (pod(phase="Running", deleting=True, terminated=False), False),
        (pod(phase="Running", deleting=True), False),
        (pod(phase="Running", deleting=True, terminated=True), False),
        (pod(phase="Succeeded"), False),
        (pod(phase="Failed", terminated=False), False),
        (pod(phase="Failed", terminated=True), True),
    ],
)
def test_when_a_pod_has_stopped_for_good(found: Pod, *, stopped: bool) -> None:
    """A final phase is a proof with containers that are all terminated."""
    assert has_stopped(found) is stopped


def test_an_init_container_that_runs_has_not_stopped() -> None:
    """The app containers may be terminated before they ever started."""
    terminated = [{"name": "main", "state": {"terminated": {}}}]
    for state, stopped in (("running", False), ("waiting", False), ("terminated", True)):
        status = {"containerStatuses": terminated, "initContainerStatuses": [{"name": "setup", "state": {state: {}}}]}
        found = {"spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Failed", **status}}
        assert has_stopped(msgspec.convert(found, Pod)) is stopped


def test_a_container_without_a_status_has_not_stopped() -> None:
    """Nothing was said of it."""
    status = {"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {}}}]}
    spec = {"containers": [{"name": "a"}, {"name": "b"}]}
    assert not has_stopped(msgspec.convert({"spec": spec, "status": status}, Pod))


@pytest.mark.parametrize(
    ("created", "age_seconds"),
    [
        ("2026-01-01T00:00:00Z", 60.0),
        ("2026-01-01T01:00:00+01:00", 60.0),
        ("2027-01-01T00:00:00Z", 0.0),
        (None, 0.0),
        ("soon", 0.0),
    ],
)
def test_the_age_of_a_pod(created: str | None, age_seconds: float) -> None:
    """What cannot be read, or lies in the future, is young."""
    assert at(60.0).age_seconds(created) == age_seconds


def test_a_pod_that_is_too_large_to_be_written_to_gets_no_gpus() -> None:
    """It is told so; as all extenders send no Binding for it, none has to fence it."""
    text = b'{"spec":{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1"}},"env":[{"value":"%s"}]}]}}'
    fits, large = (decoder(Pod)(text % (b"x" * (size - len(text) + 2))) for size in (MAX_POD_BYTES, MAX_POD_BYTES + 1))
    assert (read_request(fits).request.gpus, fits.json_bytes) == (1, 0)
    assert large.json_bytes == MAX_POD_BYTES + 1
    with pytest.raises(RequestError, match="more than 1048576 bytes"):
        read_request(large)


def test_a_pod_without_gpus_may_be_as_large_as_it_likes() -> None:
    """Its Binding carries nothing of ours."""
    assert read_request(replace(pod("p", 0), json_bytes=MAX_POD_BYTES + 1)).request.gpus == 0
