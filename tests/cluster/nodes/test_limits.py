"""Limits on shares, on a real kubelet with real containers in real cgroups of v2; the driver that holds them is the fake one."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.nodes import cgroups, programs
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.inside import seen_inside
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import is_running, on_hold
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.nodes.sharing import Held, SharingNode
from tests.cluster.polling import eventually
from topology.annotations import keys
from topology.annotations.status_codec import decode_status
from topology.node.sharing import Limits

pytestmark = pytest.mark.skipif(cgroups.v2() is None, reason="this machine has no cgroup v2")


@pytest.fixture
def real_runtime(built: Callable[[GoBuild], Path]) -> Runtime:
    """Return containerd with runc."""
    return containerd(built(programs.CONTAINERD), built(programs.RUNC))


def test_pod_is_held_before_its_first_process_and_nothing_is_left_after_it(nodes: Nodes, real_runtime: Runtime) -> None:
    """Through a new driver and a new agent: its cgroup is there before PreStartContainer, that of its container comes after."""
    sharing = SharingNode(nodes, real_runtime)
    node, agent = sharing.node, sharing.share()
    eventually(lambda: node.allocatable(keys.SHARE_RESOURCE) > 0, within_seconds=60)

    node.machine.say("fail nvmlDeviceSetMemoryLimits_v1 3 NO_PERMISSION")
    uid = sharing.start("two", 3, 10, 4)
    said = eventually(lambda: on_hold(node, "two"), within_seconds=60)
    assert "the agent may not set memory limits" in said
    assert [each for each in sharing.cgroup(uid).iterdir() if each.is_dir()] != [], "its sandbox is there"
    assert sharing.held() == set()

    node.machine.repair()
    eventually(lambda: is_running(node, "two"), within_seconds=90)
    pod = Held(3, f"besteffort/pod{uid}", 14.0)
    assert pod in sharing.held()

    def of_all() -> bool:
        containers = [each.name for each in sharing.cgroup(uid).iterdir() if each.is_dir()]
        return sharing.held() == {pod, *(Held(3, f"{pod.cgroup}/{name}", 14.0) for name in containers)}

    eventually(of_all, within_seconds=60)

    agent.kill()
    sharing.load_driver_anew()
    agent.start()
    eventually(of_all, within_seconds=60)

    sharing.end("two")
    eventually(lambda: not sharing.cgroup(uid).exists(), within_seconds=60)
    sharing.release("two")
    eventually(lambda: sharing.held() == set(), within_seconds=60)


def test_limits_follow_pods_that_come_and_go_while_agents_die(
    nodes: Nodes, real_runtime: Runtime, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """Each finds its planned GPU inside and its sum in the driver, and when all have gone the driver holds nothing."""
    sharing = SharingNode(nodes, real_runtime)
    node, agent, chance = sharing.node, sharing.share(), random.Random(0)
    eventually(lambda: node.allocatable(keys.SHARE_RESOURCE) > 0, within_seconds=60)
    waves = rounds(2, 25)
    for wave in range(waves):
        eventually(lambda: node.allocatable(keys.SHARE_RESOURCE) > 0, within_seconds=60)
        wanted = {f"w{wave}-{gpu}-{number}": (gpu, chance.randint(1, 24)) for gpu in (1, 6) for number in range(2)}
        uids = {name: sharing.start(name, gpu, gib) for name, (gpu, gib) in wanted.items()}
        for name, (gpu, _) in wanted.items():
            eventually(partial(is_running, node, name), within_seconds=120)
            assert seen_inside(node, name, "c0").env["NVIDIA_VISIBLE_DEVICES"] == node.machine.uuids[gpu]
        pods = {Held(gpu, f"besteffort/pod{uids[name]}", float(gib)) for name, (gpu, gib) in wanted.items()}
        assert pods == {each for each in sharing.held() if each.cgroup.count("/") == 1}
        agent.kill()
        for name in wanted:
            sharing.end(name)
        eventually(partial(sharing.have_gone, uids.values()), within_seconds=120)
        for name in wanted:
            sharing.release(name)
        agent.start()
    eventually(lambda: sharing.held() == set(), within_seconds=60)
    figure(f"{4 * waves} pods with shares, {waves} agents killed: each held to its share, no limit left")


def test_driver_without_limits_is_told_where_the_operator_does_without(nodes: Nodes) -> None:
    """The pod runs, and the node says that nothing holds it; what others use of its GPUs is told as well."""
    sharing = SharingNode(nodes, None, "driver 580.65.06\n")
    node, agent = sharing.node, sharing.share("preferred")
    eventually(lambda: node.allocatable(keys.SHARE_RESOURCE) > 0, within_seconds=60)
    sharing.start("lucky", 0, 10)
    eventually(lambda: is_running(node, "lucky"), within_seconds=60)
    assert sharing.held() == set()
    status = decode_status(node.annotation(keys.STATUS) or "")
    assert status.device_plugin is not None
    told = status.device_plugin.sharing
    assert told is not None
    assert (told.max_gpus, told.limits) == (8, Limits.NONE)
    assert "knows no memory limits by cgroup" in told.reasons[0]
    assert 'gputopo_agent_sharing_limits{limits="none"} 1.0' in agent.metrics()

    node.machine.say("gpu 5 used_mib 32000")

    def beyond() -> dict[str, int]:
        told = decode_status(node.annotation(keys.STATUS) or "")
        return {gpu.uuid: gpu.beyond_shares_gib for gpu in told.gpus if gpu.beyond_shares_gib}

    eventually(lambda: beyond() == {node.machine.uuids[5]: 32}, within_seconds=30)
