"""Shares of a GPU, as pods ask for them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.annotations import keys
from topology.errors import RequestError
from topology.request.gpu_request import ContainerGpus, GpuRequest, parse_pod, pod_request
from topology.request.shares import MAX_SHARES, SameGpu, side_by_side


def asking(*gib: object, init: tuple[object, ...] = (), gpus: int = 0, **annotations: str) -> dict[str, Any]:
    def containers(prefix: str, shares: tuple[object, ...]) -> list[dict[str, Any]]:
        return [
            {"name": f"{prefix}{i}", "resources": {"limits": {keys.SHARE_RESOURCE: n}}} for i, n in enumerate(shares)
        ]

    ours = {keys.USER_PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}
    whole = [{"name": "whole", "resources": {"limits": {keys.GPU_RESOURCE: gpus}}}] if gpus else []
    spec = {"containers": [*containers("main", gib), *whole], "initContainers": containers("init", init)}
    return {"metadata": {"annotations": ours}, "spec": spec}


def test_a_share_is_read_with_class_and_ceiling() -> None:
    """The ceiling is no part of what a placement depends on."""
    pod = parse_pod(asking("10", sharing_class="prod", gpu_compute_percent="25", gpu_model="*a100*"))
    assert pod.request == GpuRequest(
        0, communication=pod.request.communication, models=("*a100*",), memory_gib=(10,), sharing_class="prod"
    )
    assert pod.request.is_share and pod.request.asks
    assert pod.compute_percent == 25


def test_a_pod_without_gpus_asks_for_nothing() -> None:
    """Neither does a share of nothing."""
    assert not parse_pod(asking("0")).request.asks
    assert not parse_pod(asking()).request.asks


def test_each_container_has_its_own_share() -> None:
    """In the order in which they start; on one GPU where that is possible, unless the pod says otherwise."""
    assert parse_pod(asking("10", "4")).request.memory_gib == (10, 4)
    assert parse_pod(asking("10", "4")).request.same_gpu is SameGpu.PREFERRED
    assert parse_pod(asking("10", "4", same_gpu="never")).request.same_gpu is SameGpu.NEVER
    assert parse_pod(asking("10", same_gpu="never")).request == parse_pod(asking("10")).request


def test_an_init_container_has_a_share_of_its_own_only_beyond_those_after_it() -> None:
    """What it leaves is theirs, so all are on one GPU."""
    beyond = parse_pod(asking("20", init=("30",)))
    assert beyond.shares == (("main0", 20), ("init0", 10))
    assert beyond.request.same_gpu is SameGpu.REQUIRED
    assert beyond.share_out(["a", "a"]) == {"init0": ("a",), "main0": ("a",)}
    within = parse_pod(asking("20", init=("10", "20")))
    assert within.request == parse_pod(asking("20")).request
    assert within.share_out(["a"]) == {"init0": ("a",), "init1": ("a",), "main0": ("a",)}
    with pytest.raises(RequestError, match="an init container has its share on the GPU"):
        parse_pod(asking("20", init=("10",), same_gpu="never"))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6))
def test_shares_side_by_side_are_what_the_pod_needs_at_its_widest_moment(asked: list[tuple[int, bool]]) -> None:
    """Against what runs at each moment, container by container."""
    named = [(f"c{i}", gib, init) for i, (gib, init) in enumerate(asked)]
    moments = [sum(gib for gib, init in asked[:i] if not init) + asked[i][0] for i in range(len(asked)) if asked[i][1]]
    moments.append(sum(gib for gib, init in asked if not init))
    shares = side_by_side(named)
    assert sum(gib for _, gib in shares) == max(moments)
    assert all(gib for _, gib in shares)
    assert len({name for name, _ in shares}) == len(shares)


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        (asking("10", gpus=1), "the pod also asks for whole GPUs"),
        (asking("1.5"), "is not a whole number of GiB"),
        (asking("-1"), "is not a whole number of GiB"),
        (asking("10Gi"), "is not a whole number of GiB"),
        (asking("1k"), "'1k', which is not a whole number of GiB: write digits alone, such as 10 for 10 GiB"),
        (asking("10", required_affinity="nvlink"), "required-affinity: says nothing of a share"),
        (asking("10", min_bandwidth="10"), "min-bandwidth: says nothing of a share"),
        (asking("10", nic_affinity="preferred"), "nic-affinity: says nothing of a share"),
        (asking("10", gpu_compute_percent="0"), "is not a positive whole number"),
        (asking("10", gpu_compute_percent="101"), "is more than 100"),
        (asking("10", same_gpu="always"), "is not one of preferred, required, never"),
        (asking(gpu_compute_percent="10"), "gpu-compute-percent: says nothing without gputopo.dev/gpu-memory-gib"),
        (asking(gpus=1, same_gpu="never"), "same-gpu: says nothing without gputopo.dev/gpu-memory-gib"),
        (asking(*["1"] * (MAX_SHARES + 1)), f"{MAX_SHARES + 1} containers ask for a share, at most {MAX_SHARES}"),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_reason(pod: dict[str, Any], says: str) -> None:
    """Never passed over."""
    with pytest.raises(RequestError) as caught:
        parse_pod(pod)
    assert says in str(caught.value)


def test_whole_gpus_come_out_as_before_whatever_class_they_name() -> None:
    """A class is a matter of shares."""
    whole = [ContainerGpus("main", 2)]
    assert pod_request({keys.SHARING_CLASS: "prod"}, whole) == pod_request({}, whole)
