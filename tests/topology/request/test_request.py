"""Requests: every annotation read exactly, and nothing unreadable passed over."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.annotations import keys
from topology.errors import RequestError
from topology.node.links import Affinity
from topology.request.domains import GroupName, GroupRequest, Level
from topology.request.gpu_request import Communication, ContainerGpus, GpuRequest, NicAffinity, parse_pod, pod_request


def pod(*gpus: object, init: tuple[object, ...] = (), annotations: dict[str, str] | None = None) -> dict[str, Any]:
    def containers(prefix: str, counts: tuple[object, ...]) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{i}", "resources": {"limits": {keys.GPU_RESOURCE: n}}} for i, n in enumerate(counts)]

    ours = {keys.USER_PREFIX + name: value for name, value in (annotations or {}).items()}
    spec = {"containers": containers("main", gpus), "initContainers": containers("init", init)}
    return {"metadata": {"annotations": ours}, "spec": spec}


@pytest.mark.parametrize(
    ("annotation", "text", "field", "value"),
    [
        ("required-affinity", "nvlink", "required", Affinity.NVLINK),
        ("required-affinity", "numa-node", "required", Affinity.NUMA_NODE),
        ("preferred-affinity", "pcie-switch", "preferred", Affinity.PCIE_SWITCH),
        ("min-bandwidth", "200", "min_bandwidth_gb_per_s", 200.0),
        ("min-bandwidth", "12.5", "min_bandwidth_gb_per_s", 12.5),
        ("communication", "none", "communication", Communication.NONE),
        ("gpu-model", "*A100*, *h100*", "models", ("*a100*", "*h100*")),
        ("min-gpu-memory", "40Gi", "min_memory_bytes", 40 * 2**30),
        ("min-gpu-memory", "80G", "min_memory_bytes", 80 * 10**9),
        ("min-compute-capability", "8.6", "min_compute_capability", (8, 6)),
        ("min-compute-capability", "9", "min_compute_capability", (9, 0)),
        ("min-driver", "535.104.05", "min_driver", (535, 104, 5)),
        ("min-cuda", "12.4", "min_cuda", (12, 4)),
        ("ecc", "on", "ecc", True),
        ("nic-affinity", "required", "nic", NicAffinity.REQUIRED),
    ],
)
def test_an_annotation_is_read(annotation: str, text: str, field: str, value: object) -> None:
    """Each word, number and version means what the key page says."""
    assert getattr(parse_pod(pod("2", annotations={annotation: text})).request, field) == value


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("required-affinity", "NVLink"),
        ("required-affinity", ""),
        ("required-affinity", "system"),
        ("min-bandwidth", "0"),
        ("min-bandwidth", "-1"),
        ("min-bandwidth", "nan"),
        ("min-bandwidth", "inf"),
        ("min-bandwidth", "1e9"),
        ("min-bandwidth", "٣"),
        ("relax-after", ""),
        ("relax-after", "10"),
        ("relax-after", "1m1h"),
        ("communication", "lots"),
        ("gpu-model", "*a100*,,"),
        ("min-gpu-memory", "40 GB"),
        ("min-compute-capability", "8.0.1"),
        ("min-driver", "v535"),
        ("min-cuda", "12_4"),
        ("ecc", "true"),
        ("nic-affinity", "yes"),
        ("group", "a b"),
        ("group-size", "0"),
        ("group-size", "4"),
        ("gang", "required"),
        ("gang", "preferred"),
        ("group-min", "2"),
        ("expected-duration", "soon"),
        ("group-affinity", "row"),
        ("group-affinity", "required-"),
        ("group-affinity", "rack"),
        ("device-mismatch", "ignore"),
        ("required-afinity", "nvlink"),
    ],
)
def test_an_unreadable_annotation_is_refused_by_name(annotation: str, text: str) -> None:
    """A typo in a key or a value never silently means "anything goes"."""
    with pytest.raises(RequestError) as refused:
        parse_pod(pod("2", annotations={annotation: text}))
    assert refused.value.key == keys.USER_PREFIX + annotation


@pytest.mark.parametrize(
    ("affinity", "level", "required"),
    [
        ("rack", Level.RACK, False),
        ("preferred-block", Level.BLOCK, False),
        ("required-nvlink-domain", Level.NVLINK_DOMAIN, True),
    ],
)
def test_a_group_says_its_size_and_what_it_wants_to_share(affinity: str, level: Level, required: bool) -> None:
    """A level alone is a preference."""
    said = {"group": "llama", "group-size": "4", "group-affinity": affinity}
    assert parse_pod(pod("2", annotations=said)).group == GroupRequest("llama", 4, level, required)


def test_a_gang_says_that_it_starts_whole_or_with_how_many_pods() -> None:
    """And any pod how long it will run."""
    said = {"group": "llama", "group-size": "4", "gang": "required", "group-min": "3", "expected-duration": "1h30m"}
    read = parse_pod(pod("2", annotations=said))
    assert read.group == GroupRequest("llama", 4, is_gang=True, least=3)
    assert read.expected_seconds == 5400


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"group": "llama", "group-min": "2"}, "says nothing without gputopo.dev/gang"),
        ({"group": "llama", "gang": "required", "group-size": "2", "group-min": "3"}, "3 is more than the group's 2"),
    ],
)
def test_a_minimum_that_means_nothing_is_refused(said: dict[str, str], why: str) -> None:
    """Of a group that is no gang, or larger than the gang."""
    with pytest.raises(RequestError, match=why):
        parse_pod(pod("2", annotations=said))


def test_a_group_that_says_nothing_else_asks_to_be_near() -> None:
    """As large as it is, in as few NVLink domains, racks and blocks as can be."""
    assert parse_pod(pod("2", annotations={"group": "llama"})).group == GroupRequest("llama", None, Level.NVLINK_DOMAIN)


def test_a_group_that_others_name_has_the_size_and_affinity_that_we_are_told() -> None:
    """`group-size` needs no `group` then, and goes before what they say."""
    theirs = GroupName("kueue", "gang", size=3)
    said = {keys.GROUP_SIZE: "4", keys.GROUP_AFFINITY: "required-rack"}
    assert pod_request(said, (), group=theirs).group == GroupRequest(
        "gang", 4, Level.RACK, required=True, source="kueue"
    )
    assert pod_request({}, (), group=theirs).group == GroupRequest("gang", 3, Level.NVLINK_DOMAIN, source="kueue")


def test_a_required_domain_relaxes_like_every_other_demand() -> None:
    """`relax-after` counts from the pod's creation."""
    said = {"group": "llama", "group-affinity": "required-rack", "relax-after": "10m"}
    request = parse_pod(pod("2", annotations=said))
    assert request.group_at_age(599.0) == request.group
    assert request.group_at_age(600.0) == GroupRequest("llama", level=Level.RACK)


@pytest.mark.parametrize("count", ["-1", "1.5", "1k", "1e2", "٣", "1_000", " 1", "", "1000000000000", True, 1.5])
def test_a_count_that_is_no_plain_number_is_refused(count: object) -> None:
    """Extended resources are whole, and Python's generous number syntax is not Kubernetes'."""
    with pytest.raises(RequestError, match="whole number of GPUs"):
        parse_pod(pod(count))


def test_more_gpus_than_any_node_has_are_refused() -> None:
    """No loop anywhere runs over what a user wrote."""
    with pytest.raises(RequestError, match="no node has more"):
        parse_pod(pod("999999999"))


def test_a_multi_gpu_pod_prefers_nvlink_by_default() -> None:
    """Nothing said: two or more GPUs talk a lot and like to be near; one GPU talks to nobody."""
    many, one = parse_pod(pod("4")).request, parse_pod(pod("1")).request
    assert (many.preferred, many.communication) == (Affinity.NVLINK, Communication.HEAVY)
    assert (one.preferred, one.communication) == (None, Communication.NONE)


@pytest.mark.parametrize("gpus", [0, 1, 2, 8])
def test_a_pod_that_says_nothing_asks_for_what_everybody_takes_it_to_ask_for(gpus: int) -> None:
    """The device plugin, the pages, the command line and the simulator ask for such pods without reading one."""
    assert parse_pod(pod(str(gpus))).request == GpuRequest.plain(gpus)


def test_a_pod_without_gpus_asks_for_none() -> None:
    """Other resources, and no resources at all, are nothing to us."""
    assert parse_pod({"spec": {"containers": [{"name": "main"}]}}).request.gpus == 0


@pytest.mark.parametrize(
    ("containers", "total"),
    [
        ([ContainerGpus("a", 2), ContainerGpus("b", 1)], 3),
        ([ContainerGpus("init", 4, init=True), ContainerGpus("a", 2)], 4),
        ([ContainerGpus("init", 1, init=True), ContainerGpus("a", 2)], 2),
        ([ContainerGpus("sidecar", 1), ContainerGpus("init", 4, init=True), ContainerGpus("a", 2)], 5),
    ],
)
def test_a_pod_needs_what_it_holds_at_its_widest_moment(containers: list[ContainerGpus], total: int) -> None:
    """Init containers run before the others and lend their GPUs on; sidecars keep theirs."""
    assert pod_request({}, containers).request.gpus == total


def test_containers_share_the_ring_as_neighbours() -> None:
    """Each container gets a stretch of the ring; an init container uses GPUs that its successors get."""
    request = parse_pod(pod("2", "1", init=("3",)))
    assert request.share_out(["r0", "r1", "r2"]) == {
        "init0": ("r0", "r1", "r2"),
        "main0": ("r0", "r1"),
        "main1": ("r2",),
    }


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("0s", 0)])
def test_floors_turn_into_preferences_with_age(text: str, seconds: float) -> None:
    """Up to the moment named the demand stands; from then on it is a preference."""
    request = parse_pod(
        pod("4", annotations={"required-affinity": "nvlink", "min-bandwidth": "100", "relax-after": text})
    )
    assert request.at_age(seconds - 0.001).required is Affinity.NVLINK
    relaxed = request.at_age(seconds)
    assert (relaxed.required, relaxed.preferred, relaxed.min_bandwidth_gb_per_s) == (None, Affinity.NVLINK, None)


@given(
    st.dictionaries(st.sampled_from([keys.MIN_BANDWIDTH, keys.RELAX_AFTER, keys.GPU_MODEL, keys.MIN_DRIVER]), st.text())
)
def test_any_text_is_read_or_refused(annotations: dict[str, str]) -> None:
    """No annotation a user can write raises anything else."""
    with suppress(RequestError):
        assert isinstance(pod_request(annotations, [ContainerGpus("main", 2)]).request, GpuRequest)


@pytest.mark.parametrize(
    ("written", "question"),
    [
        ("required-afinity", ", did you mean gputopo.dev/required-affinity?"),
        ("min-gpu-mem", ", did you mean gputopo.dev/min-gpu-memory?"),
        ("gpu-memory-gib", ": a container asks for it among its resources"),
        ("xyz", ""),
        ("required-affinity" + "y" * 200_000, ""),
    ],
)
def test_an_unknown_annotation_is_compared_with_those_that_exist(written: str, question: str) -> None:
    """The nearest one is asked for, if one is near; a key of any length costs the same."""
    with pytest.raises(RequestError) as refused:
        pod_request({keys.USER_PREFIX + written: "nvlink"}, [])
    assert str(refused.value) == f"{keys.USER_PREFIX}{written}: unknown annotation{question}"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"nvidia.com/mig-1g.10gb": 1}, {"nvidia.com/mig-1g.10gb": "2"}, (3, "1g.10gb")),
        ({"nvidia.com/mig-1g.10gb.me": 1}, {}, (1, "1g.10gb.me")),
        ({"nvidia.com/mig-1g.10gb": 0, "nvidia.com/gpu": 2}, {}, (2, "")),
        ({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 1}, {}, "also asks for nvidia.com/gpu"),
        ({"nvidia.com/mig-1g.10gb": 1}, {"nvidia.com/gpu": 1}, "not all containers do"),
        ({"nvidia.com/gpu": 1}, {"nvidia.com/mig-1g.10gb": 1}, "not all containers do"),
        ({"nvidia.com/mig-1g.10gb": "1k"}, {}, "not a whole number"),
    ],
)
def test_slices_are_asked_for_by_profile_and_one_kind_at_a_time(
    first: dict[str, Any], second: dict[str, Any], said: tuple[int, str] | str
) -> None:
    """Several kinds in one pod are refused, and not guessed at; a kind of which it wants none does not count."""
    spec = {"containers": [{"name": f"c{i}", "resources": {"limits": each}} for i, each in enumerate((first, second))]}
    if isinstance(said, str):
        with pytest.raises(RequestError, match=said):
            parse_pod({"spec": spec})
        return
    request = parse_pod({"spec": spec}).request
    assert (request.gpus, request.profile) == said
