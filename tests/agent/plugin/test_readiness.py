"""No misconfiguration is silent: each one is a reason, and whatever endangers a pod closes the node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.plugin.alignment import Alignment
from agent.plugin.readiness import PluginProgress, Setting, enforcing, observing
from topology.node.alignment import NumaCpus, Policy, Scope, TopologyManager
from topology.node.status import DevicePluginStatus

R = "nvidia.com/gpu"
GPUS = frozenset({"GPU-a", "GPU-b"})
WELL = PluginProgress(answers=True, allocatable=GPUS, healthy=GPUS, known=GPUS)
SINGLE = Alignment(Policy.SINGLE_NUMA_NODE, Scope.POD)
ALIGNING = Setting(alignment=SINGLE, cpus={0: 0, 1: 0, 2: 1, 3: 1})


def enforce(setting: Setting = Setting(), progress: PluginProgress = WELL, **changes: Any) -> DevicePluginStatus:  # noqa: B008
    """Return the status of a node that is as it should be but for this."""
    well: dict[str, Any] = {"session": "1", "locked": True, "env": True, "cdi": "auto"}
    told = well | changes
    progress = replace(progress, session=told["session"], locked=told["locked"])
    return enforcing(R, setting, progress, env=told["env"], cdi=told["cdi"])


def test_node_that_is_as_it_should_be_says_nothing() -> None:
    """Ready, with its session."""
    status = enforce()
    assert (status.ready, status.session, status.reasons) == (True, "1", ())
    assert observing(R, Setting(), WELL).ready


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (enforce(Setting(kubelet_socket=False)), "no kubelet answers in the device plugin folder"),
        (enforce(Setting(rival="nvidia-gpu.sock")), "another device plugin serves nvidia.com/gpu: nvidia-gpu.sock"),
        (enforce(Setting(socket_path_bytes=108)), "the path of the device plugin folder is too long for a socket"),
        (enforce(locked=False), "another agent serves this node"),
        (enforce(session=""), "not registered with the kubelet"),
        (enforce(progress=PluginProgress(answers=False)), "PodResources does not answer"),
        (
            enforce(progress=PluginProgress(True, GPUS, frozenset({"GPU-a"}), GPUS)),
            "the kubelet does not offer the GPUs yet that we told",
        ),
        (
            enforce(Setting(cdi=False), cdi="always"),
            "no CDI specs name the GPUs, and containers would not get them",
        ),
        (
            enforce(env=False, cdi="never"),
            "containers are told of their GPUs neither by environment nor by CDI",
        ),
        (observing(R, Setting(), PluginProgress(answers=False)), "PodResources does not answer"),
        (
            observing(R, Setting(), PluginProgress(True, frozenset(), GPUS, GPUS)),
            "no device plugin serves nvidia.com/gpu",
        ),
        (
            observing(R, Setting(), PluginProgress(True, frozenset({"GPU-a::0"}), GPUS, GPUS)),
            "devices of nvidia.com/gpu are not whole GPUs",
        ),
    ],
)
def test_what_endangers_a_pod_closes_the_node(status: DevicePluginStatus, reason: str) -> None:
    """And says why."""
    assert not status.ready
    assert reason in status.reasons


@pytest.mark.parametrize(
    ("status", "note"),
    [
        (
            enforce(Setting(cdi=False)),
            "no CDI specs name the GPUs: only NVIDIA_VISIBLE_DEVICES tells the runtime",
        ),
        (
            observing(R, ALIGNING, WELL),
            "topology manager policy single-numa-node narrows which GPUs a pod may have",
        ),
    ],
)
def test_what_is_only_worth_knowing_is_said_too(status: DevicePluginStatus, note: str) -> None:
    """The node stays open."""
    assert status.ready
    assert status.reasons == (note,)


def test_others_are_told_how_the_kubelet_aligns() -> None:
    """Policy, scope, and how many CPUs of each NUMA node a container can still have for itself."""
    progress = replace(WELL, cpus=frozenset({1, 2, 3}), held_cpus=frozenset({1}))
    manager = TopologyManager(Policy.SINGLE_NUMA_NODE, Scope.POD, (NumaCpus(0, 2, 0), NumaCpus(1, 2, 2)))
    assert observing(R, ALIGNING, progress).topology_manager == manager
    assert enforce(ALIGNING, progress).topology_manager == manager


def test_cpus_have_no_say_where_the_kubelet_gives_none_away_or_it_is_not_known_how() -> None:
    """Without the static CPU manager there are none to have; with `align-by-socket` another rule holds."""
    bare = TopologyManager(Policy.SINGLE_NUMA_NODE, Scope.POD)
    assert observing(R, ALIGNING, WELL).topology_manager == bare
    by_socket = replace(ALIGNING, alignment=replace(SINGLE, cpus_count=False))
    progress = replace(WELL, cpus=frozenset({1, 2}))
    assert observing(R, by_socket, progress).topology_manager == bare
    strange = replace(WELL, cpus=frozenset({1, 77}))
    assert observing(R, ALIGNING, strange).topology_manager == bare


def test_sick_gpus_that_the_kubelet_gives_away_all_the_same_are_named() -> None:
    """It counts them as free when it looks for a NUMA node with enough."""
    progress = replace(WELL, healthy=frozenset({"GPU-a"}))
    assert observing(R, ALIGNING, progress).also_offered == {"GPU-b"}
    assert observing(R, Setting(), progress).also_offered == frozenset()
