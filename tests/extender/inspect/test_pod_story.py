"""What a pod's page says in words: its request, when it relaxes, why it waits, and how fast its GPUs are together."""

from __future__ import annotations

import pytest

from extender.cluster.objects.gpu_pods import GpuPod
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.inspect.pod_story import AFFINITIES, REASONS, bandwidth_story, relaxation, request_lines
from extender.kit.clock import Instant
from tests.extender.builders import cluster, gpus, node, pod
from topology.annotations import keys
from topology.annotations.records import PlacementRecord, encode_placement
from topology.bandwidth.predict import Bandwidth
from topology.node.links import Affinity
from topology.placement.verdict import Reason

CREATED = 1_767_225_600.0
"""2026-01-01T00:00:00Z, when pods of the builders are created."""
RELAXING = {keys.REQUIRED_AFFINITY: "nvlink", keys.RELAX_AFTER: "10m"}


def known(item: Pod) -> tuple[ClusterState, GpuPod]:
    state = cluster(node("n1"), item)
    [found] = state.pods
    return state, found


@pytest.mark.parametrize(
    ("age_seconds", "words"),
    [
        (0.0, "relaxes in 10 min"),
        (3 * 60.0, "relaxes in 7 min"),
        (9 * 60.0 + 30, "relaxes in 1 min"),
        (11 * 60.0, "has relaxed: what it required of links is a preference now"),
    ],
)
def test_a_waiting_pod_says_when_it_relaxes(age_seconds: float, words: str) -> None:
    """From its creation on, as filter counts it."""
    state, found = known(pod("p", 4, wants=RELAXING))
    assert relaxation(state, found, Instant(age_seconds, CREATED + age_seconds)) == words


@pytest.mark.parametrize("wants", [{}, {keys.RELAX_AFTER: "soon"}])
def test_a_pod_that_never_relaxes_says_nothing(wants: dict[str, str]) -> None:
    """Nor does one whose words cannot be read: its page says that elsewhere."""
    state, found = known(pod("p", 4, wants=wants))
    assert relaxation(state, found, Instant(0.0, CREATED)) == ""


def test_a_request_is_told_in_words() -> None:
    """Only what users write; whatever else stands on the pod is not part of it."""
    _, found = known(pod("p", 4, wants={**RELAXING, "example.com/team": "a", keys.FENCE: "x"}))
    lines = [(line.what, line.value) for line in request_lines(found)]
    assert lines == [("relax after", "10m"), ("required affinity", "NVLink")]


def test_every_reason_and_affinity_has_words() -> None:
    """Pages show no value of a label."""
    assert REASONS.keys() == {*Reason}
    assert AFFINITIES.keys() == {*Affinity}


def test_a_prediction_and_a_measurement_are_told_apart() -> None:
    """What a record has from a measurement is no prediction."""
    pair = gpus("n1", 0, 1)
    for measured in (False, True):
        bandwidth = Bandwidth(90.0, 100.0, 110.0, measured=measured)
        record = PlacementRecord({"main": pair}, bandwidth=bandwidth)
        state, found = known(pod("p", 2, on="n1", wants={keys.PLACEMENT: encode_placement(record)}))
        story = bandwidth_story(state, found)
        assert (story.predicted is None, story.measured is None) == (measured, not measured)
