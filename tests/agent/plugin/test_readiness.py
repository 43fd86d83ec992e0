"""No misconfiguration is silent: each one is a reason, and whatever endangers a pod closes the node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.plugin.readiness import Progress, Setting, enforcing, observing
from topology.node.status import DevicePluginStatus

R = "nvidia.com/gpu"
GPUS = frozenset({"GPU-a", "GPU-b"})
WELL = Progress(answers=True, allocatable=GPUS, healthy=GPUS, known=GPUS)


def enforce(setting: Setting = Setting(), progress: Progress = WELL, **changes: Any) -> DevicePluginStatus:  # noqa: B008
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
        (enforce(progress=Progress(answers=False)), "PodResources does not answer"),
        (
            enforce(progress=Progress(True, GPUS, frozenset({"GPU-a"}), GPUS)),
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
        (observing(R, Setting(), Progress(answers=False)), "PodResources does not answer"),
        (observing(R, Setting(), Progress(True, frozenset(), GPUS, GPUS)), "no device plugin serves nvidia.com/gpu"),
        (
            observing(R, Setting(), Progress(True, frozenset({"GPU-a::0"}), GPUS, GPUS)),
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
            observing(R, Setting(topology_policy="single-numa-node"), WELL),
            "topology manager policy single-numa-node narrows what the plugin may choose from",
        ),
    ],
)
def test_what_is_only_worth_knowing_is_said_too(status: DevicePluginStatus, note: str) -> None:
    """The node stays open."""
    assert status.ready
    assert status.reasons == (note,)


def test_topology_policy_does_not_bind_us() -> None:
    """Our devices have no NUMA node, so the kubelet offers all of them under every policy."""
    assert enforce(Setting(topology_policy="single-numa-node")).reasons == ()
