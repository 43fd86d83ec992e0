"""Memory that no share explains is told in steps that do not flap; NVML's part through the real binding."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.gpus.facts import GpuProcess
from agent.gpus.memory_limits import GpuCgroup
from agent.gpus.nvml.cgroup_limits import read_limits, set_limits
from agent.gpus.nvml.reader import read_nvml
from agent.limits.cgroups import PodCgroups, pod_of
from agent.limits.foreign import ForeignMemory, PromisedMemory, beyond_shares, used_by_pod
from agent.limits.share import GIB, Share
from agent.limits.usage import DriverUsage
from tests.agent.limits.node import GPUS, UID, Node, share
from topology.node.status import GpuStatus, NodeGpuStatus

STATUS = NodeGpuStatus(0, tuple(map(GpuStatus, GPUS)))


def foreign(held: PromisedMemory, owners: dict[int, str] | None = None) -> ForeignMemory:
    """Return a node where nobody but the given processes' owners is known."""
    return ForeignMemory(lambda: held, lambda _: {}, (owners or {}).get)


def told(memory: ForeignMemory) -> dict[int, int]:
    """Look, and return GPU → GiB of those of which anything is told."""
    status = memory.marked(STATUS, read_nvml())
    return {index: gpu.beyond_shares_gib for index, gpu in enumerate(status.gpus) if gpu.beyond_shares_gib}


def used(node: Node, gib: float, *more: str, gpu: int = 0) -> None:
    """Let so much of a GPU be used from now on."""
    node.describe(f"gpu {gpu} used_mib {int(gib * 1024)}", *more)


def test_gpu_that_is_used_outside_of_pods_tells_it(node: Node) -> None:
    """In steps of 4 GiB; what nearly every GPU has in use is no news."""
    used(node, 0.9)
    used(node, 10.0, gpu=1)
    assert told(foreign(PromisedMemory())) == {1: 12}


def test_gpu_that_belongs_to_one_pod_alone_tells_nothing(node: Node) -> None:
    """What it uses is its own affair."""
    used(node, 70.0)
    assert told(foreign(PromisedMemory(whole=frozenset({GPUS[0]})))) == {}


def test_only_what_pods_really_use_is_explained_by_their_shares(node: Node) -> None:
    """A stranger beside a pod that uses less than it may is seen, and so is a pod that uses more."""
    owners = {10: UID, 20: ""}
    used(node, 8.0, "gpu 0 process 10 python", "gpu 0 process_mib 10 2048", "gpu 0 process 20 python")
    assert told(foreign(PromisedMemory((share(10),)), owners)) == {0: 8}
    used(node, 16.0, "gpu 0 process_mib 10 16384", "gpu 0 process_mib 20 0")
    assert told(foreign(PromisedMemory((share(10),)), owners)) == {0: 8}


def test_where_nobody_tells_whose_processes_are_shares_explain_all_they_may(node: Node) -> None:
    """So at least what is used beyond all shares together is seen."""
    used(node, 12.0, "gpu 0 process 10")
    assert told(foreign(PromisedMemory((share(10),)))) == {0: 4}
    assert told(foreign(PromisedMemory((share(12),)))) == {}


def test_driver_counts_what_a_pods_cgroup_uses(node: Node) -> None:
    """From r615 on, where a limit stands, it takes no PID namespace to see a stranger."""
    pod = node.pod()
    set_limits({GpuCgroup(GPUS[0], str(pod)): 10 * GIB})
    used(node, 8.0, f"use 0 2048 {pod}")
    usage = DriverUsage(read_limits, PodCgroups(node.root))
    assert usage([share(10)]) == {(UID, GPUS[0]): 2 * GIB}
    assert told(ForeignMemory(lambda: PromisedMemory((share(10),)), usage, lambda _: None)) == {0: 8}


def test_step_is_taken_when_two_looks_in_a_row_agree(node: Node) -> None:
    """A pod that has gone leaves its memory in use for a moment, one that comes takes it before its claim is heard of."""
    memory = foreign(PromisedMemory())
    assert told(memory) == {}
    for gib, expected in ((40.0, {}), (0.0, {}), (40.0, {}), (40.0, {0: 40}), (0.0, {0: 40}), (40.0, {0: 40})):
        used(node, gib)
        assert told(memory) == expected, gib


def test_amount_at_the_edge_of_a_step_does_not_flap(node: Node) -> None:
    """However often it is looked at."""
    memory, seen = foreign(PromisedMemory()), set()
    for turn in range(12):
        used(node, 5.0 + (0.4 if turn // 2 % 2 else -0.4))
        seen.add(tuple(told(memory).items()))
    assert seen == {((0, 4),)}


def test_memory_that_grows_is_followed(node: Node) -> None:
    """To the highest of steps, and back."""
    memory = foreign(PromisedMemory())
    for gib, expected in (
        (0.0, {}),
        (20.0, {}),
        (70.0, {0: 20}),
        (70.0, {0: 72}),
        (3.0, {0: 72}),
        (0.2, {0: 4}),
        (0.2, {}),
    ):
        used(node, gib)
        assert told(memory) == expected, gib


@pytest.mark.parametrize("unknown", [GpuProcess(2, memory_bytes=None), GpuProcess(3, memory_bytes=GIB)])
def test_one_process_that_nobody_can_place_leaves_all_untold(unknown: GpuProcess) -> None:
    """Whether its memory is not told, or its pod."""
    owners = {1: "pod", 2: "pod"}
    assert used_by_pod([GpuProcess(1, memory_bytes=GIB)], owners.get) == {"pod": GIB}
    assert used_by_pod([GpuProcess(1, memory_bytes=GIB), unknown], owners.get) is None
    assert used_by_pod(None, owners.get) is None
    assert used_by_pod([], owners.get) is None


def test_pods_explain_no_more_than_their_shares() -> None:
    """Each its own."""
    shares = {"a": 10, "b": 5}
    assert beyond_shares(20, shares, {}, {"a": 12, "b": 1}) == 20 - 10 - 1
    assert beyond_shares(20, shares, {"a": 4}, None) == 20 - 4 - 5
    assert beyond_shares(3, shares, {}, None) == 0


@pytest.mark.parametrize(
    ("line", "uid"),
    [
        (f"0::/kubepods/burstable/pod{UID}/0123", UID),
        (f"0::/../kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-0123.scope", UID),
        (f"12:pids:/kubepods/pod{UID}/0123\n0::/", UID),
        ("0::/system.slice/nvidia-persistenced.service", ""),
    ],
)
def test_pod_of_a_process_is_told_by_its_cgroup(tmp_path: Path, line: str, uid: str) -> None:
    """Where its number is the host's; in a PID namespace of our own it may be that of anything."""
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "cgroup").write_text(f"{line}\n")
    assert pod_of(41, tmp_path) is None
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "comm").write_text("kthreadd\n")
    assert pod_of(41, tmp_path) == uid
    assert pod_of(42, tmp_path) is None


def test_shares_of_one_pod_on_one_gpu_explain_together(node: Node) -> None:
    """Those of its containers."""
    used(node, 14.0)
    assert told(foreign(PromisedMemory((share(10), share(4, "side"))))) == {}
    assert told(foreign(PromisedMemory((share(10), Share("other", "default", "b", "main", GPUS[1], 4))))) == {0: 4}
