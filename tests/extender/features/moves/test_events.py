"""What is said of moves stays within namespaces."""

from __future__ import annotations

import pytest

from extender.cluster.candidates.holds import Held
from extender.features.moves.events import moved
from extender.kubernetes.events import PodName
from extender.planning.moves import MovablePod
from extender.planning.units import Assignment, PendingPod
from tests.extender.builders import pod
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

ONE = GpuRequest.plain(1)


@pytest.mark.parametrize(
    ("request_of_pod", "what"),
    [
        (GpuRequest(2), "GPUs of b are"),
        (GpuRequest(2, profile="1g.10gb"), "MIG slices of b are"),
        (GpuRequest(0, memory_gib=(10, 5)), "15 GiB of GPU memory of b are"),
    ],
)
def test_a_moved_pod_says_what_is_reserved(request_of_pod: GpuRequest, what: str) -> None:
    """And a part of a GPU for a short time costs less than one GPU-minute."""
    move = MovablePod(PendingPod(pod("moves"), request_of_pod), "a", Held(0b1), 18.0)
    shares = (0,) * len(request_of_pod.memory_gib)
    place = Assignment(pod("moves"), request_of_pod, "b", Placement((0, 1), None, None, 0.0, shares=shares))
    event = moved(PodName("ml", "moves", "m"), PodName("ml", "w", "w"), move, place)
    assert f"cost 0.3 GPU-minutes; {what} reserved" in event.note


@pytest.mark.parametrize(("namespace", "name"), [("ml", "ml/secret"), ("other", "a pod of another namespace")])
def test_a_moved_pod_does_not_say_which_pod_of_another_namespace_waits(namespace: str, name: str) -> None:
    """People who may read the events of one namespace may not read those of all."""
    move = MovablePod(PendingPod(pod("moves"), ONE), "a", Held(0b1), 120.0)
    place = Assignment(pod("moves"), ONE, "b", Placement((0,), None, None, 0.0))
    event = moved(PodName("ml", "moves", "m"), PodName(namespace, "secret", "s"), move, place)
    assert event.note.startswith(f"moved to make room for {name}, cost 2 GPU-minutes; GPUs of b")
