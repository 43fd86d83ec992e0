"""What the product's caches can come to believe of a claim, whatever they have heard and missed."""

from __future__ import annotations

from unittest import mock

import pytest

from extender.cluster.caches import pod_cache
from extender.cluster.ownership.standing import Standing
from tests.model.beliefs import BOUND, PENDING, Beliefs, beliefs, life, lives, node_version, pod_version, shared
from tests.model.library import Phase, Place

RUNS = (Phase.RUNNING, Phase.STOPPING, Phase.DOUBTED, Phase.GHOST)


@pytest.mark.slow
@pytest.mark.parametrize("phase", RUNS)
def test_c1_nobody_takes_a_gpu_for_free_whose_containers_run(believed: Beliefs, phase: Phase) -> None:
    """Nothing else does the model have to know of watches, lists, live reads and the agent's reports."""
    assert Standing.FREE not in believed[phase, Place.HERE]


@pytest.mark.slow
def test_the_lives_that_are_told_lead_to_every_phase() -> None:
    """A phase that no life leads to would be one of which nothing is believed."""
    assert {moment.phase for told in lives() for moment in told.moments} == set(Phase) - {Phase.UNBORN}


@pytest.mark.slow
def test_a_share_is_believed_as_a_whole_gpu_is(believed: Beliefs) -> None:
    """Whoever else holds a share of that GPU all the time; so one table does for both."""
    assert beliefs(map(shared, lives())) == believed


def test_deletion_taken_for_proof_is_believed() -> None:
    """The table is the product's own: replace one rule of it, and the table changes."""
    told = life(Place.HERE, PENDING, BOUND, (Phase.STOPPING, pod_version(Place.HERE, "Running", deleting=True)))
    assert Standing.FREE not in beliefs([told])[Phase.STOPPING, Place.HERE]
    with mock.patch.object(pod_cache, "has_stopped", lambda pod: bool(pod.metadata.deletion_timestamp)):
        assert Standing.FREE in beliefs([told])[Phase.STOPPING, Place.HERE]


def test_a_final_phase_by_another_hand_is_no_proof_before_any_status_was_reported() -> None:
    """The containers may have started just before the node was lost; the kubelet's own refusals look the same."""
    lost, ended = (Phase.RUNNING, node_version(ready=False)), (Phase.DOUBTED, pod_version(Place.HERE, "Failed"))
    assert Standing.FREE not in beliefs([life(Place.HERE, PENDING, BOUND, lost, ended)])[Phase.DOUBTED, Place.HERE]
