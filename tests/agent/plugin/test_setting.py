"""What is found around a kubelet, told whole: each fault has its words, and nothing that is well has any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.plugin.alignment import Alignment
from agent.plugin.readiness import PluginProgress, Setting, enforcing, observing
from topology.node.status import DevicePluginStatus, Mode

R = "nvidia.com/gpu"
GPUS = frozenset({"GPU-a", "GPU-b"})
WELL = PluginProgress(answers=True, allocatable=GPUS, healthy=GPUS, known=GPUS)
NO_CDI = "no CDI specs name the GPUs, and containers would not get them"
ONLY_ENV = "no CDI specs name the GPUs: only NVIDIA_VISIBLE_DEVICES tells the runtime"
NOWHERE = "containers are told of their GPUs neither by environment nor by CDI"


def enforce(setting: Setting, progress: PluginProgress = WELL, **changes: Any) -> DevicePluginStatus:
    """Return the status of a node whose plugin we are, and which is as it should be but for this."""
    well: dict[str, Any] = {"session": "1", "locked": True, "env": True, "cdi": "auto"}
    told = well | changes
    progress = replace(progress, session=told["session"], locked=told["locked"])
    return enforcing(R, setting, progress, env=told["env"], cdi=told["cdi"])


def test_a_node_of_which_nothing_is_known_has_nothing_against_it() -> None:
    """Defaults are what most nodes are like."""
    assert enforce(Setting()) == DevicePluginStatus(Mode.ENFORCE, ready=True, session="1")
    assert observing(R, Setting(), WELL) == DevicePluginStatus(Mode.OBSERVE, ready=True)
    assert PluginProgress(answers=True) == PluginProgress(True, None, frozenset(), frozenset())


def test_before_the_kubelet_was_asked_a_node_is_not_ready_and_nothing_is_wrong() -> None:
    """The first answer is on its way."""
    assert observing(R, Setting(), PluginProgress(answers=True)) == DevicePluginStatus(Mode.OBSERVE, ready=False)


@pytest.mark.parametrize(("policy", "notes"), [("none", 0), ("", 0), ("restricted", 1)])
def test_a_policy_that_narrows_nothing_is_not_worth_a_word(policy: str, notes: int) -> None:
    """Nor is one that could not be read."""
    setting = Setting(alignment=Alignment.named(policy, "container"))
    assert len(observing(R, setting, WELL).reasons) == notes


@pytest.mark.parametrize(("length", "ready"), [(106, True), (107, True), (108, False)])
def test_the_longest_path_of_a_socket_is_107_bytes(length: int, *, ready: bool) -> None:
    """One more does not fit into the kernel's structure with its final zero."""
    assert enforce(Setting(socket_path_bytes=length)).ready is ready


@pytest.mark.parametrize(
    ("env", "cdi", "specs", "reasons", "ready"),
    [
        (True, "auto", True, (), True),
        (True, "always", True, (), True),
        (True, "never", True, (), True),
        (False, "auto", True, (), True),
        (False, "always", True, (), True),
        (False, "never", True, (NOWHERE,), False),
        (True, "auto", False, (ONLY_ENV,), True),
        (True, "always", False, (NO_CDI,), False),
        (True, "never", False, (), True),
        (False, "auto", False, (NO_CDI,), False),
        (False, "always", False, (NO_CDI,), False),
        (False, "never", False, (NO_CDI, NOWHERE), False),
    ],
)
def test_containers_are_told_of_their_gpus_one_way_or_the_other(
    env: bool, cdi: str, specs: bool, reasons: tuple[str, ...], ready: bool
) -> None:
    """All ways to configure it, with and without CDI specs on the node."""
    status = enforce(Setting(cdi=specs), env=env, cdi=cdi)
    assert (status.reasons, status.ready) == (reasons, ready)


def test_what_follows_from_another_fault_is_not_told() -> None:
    """A plugin that is not registered for a reason, and is offered nothing, has one reason and not three."""
    behind = PluginProgress(answers=True, allocatable=frozenset(), healthy=GPUS, known=GPUS)
    assert enforce(Setting(kubelet_socket=False), behind, session="").reasons == (
        "no kubelet answers in the device plugin folder",
    )
    assert enforce(Setting(), behind, session="").reasons == ("not registered with the kubelet",)
    assert enforce(Setting(), behind).reasons == ("the kubelet does not offer the GPUs yet that we told",)


def test_faults_that_do_not_follow_from_each_other_are_all_told() -> None:
    """In an order that does not change."""
    setting = Setting(kubelet_socket=False, rival="nvidia-gpu.sock", socket_path_bytes=200, cdi=False)
    status = enforce(setting, PluginProgress(answers=False), locked=False)
    assert status.reasons == (
        "the path of the device plugin folder is too long for a socket",
        "no kubelet answers in the device plugin folder",
        f"another device plugin serves {R}: nvidia-gpu.sock",
        "another agent serves this node",
        "PodResources does not answer",
        ONLY_ENV,
    )


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (PluginProgress(answers=False, allocatable=GPUS, known=GPUS), "PodResources does not answer"),
        (PluginProgress(answers=True, allocatable=frozenset(), known=GPUS), f"no device plugin serves {R}"),
        (
            PluginProgress(answers=True, allocatable=GPUS | {"GPU-a::0"}, known=GPUS),
            f"devices of {R} are not whole GPUs",
        ),
    ],
)
def test_beside_another_plugin_one_fault_is_told(progress: PluginProgress, reason: str) -> None:
    """The first that there is; the node is closed by it."""
    assert observing(R, Setting(), progress) == DevicePluginStatus(Mode.OBSERVE, ready=False, reasons=(reason,))
