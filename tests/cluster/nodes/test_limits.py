"""Limits on shares, on a real kubelet with real containers in real cgroups of v2; the driver that holds them is the fake one."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.cluster.api import Json
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import recorded
from tests.cluster.nodes import cgroups
from tests.cluster.nodes.agents import shares_gpus
from tests.cluster.nodes.churn import Container, churn
from tests.cluster.nodes.killer import killing
from tests.cluster.nodes.limited import QOS, Held, LimitedNode, watched
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.pods import is_running, on_hold, share_pod, wait_running
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.nodes.sharing import SharingNode
from tests.cluster.nodes.test_churn import assert_amounts_kept, assert_none_lost, assert_plans_kept, refusals
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME
from topology.annotations import keys
from topology.annotations.status_codec import decode_status
from topology.node.sharing import Limits

pytestmark = pytest.mark.skipif(cgroups.v2() is None, reason="this machine has no cgroup v2")


def test_pod_is_held_before_its_first_process_and_nothing_is_left_after_it(nodes: Nodes, real_runtime: Runtime) -> None:
    """Through a new driver and a new agent: its cgroup is there before PreStartContainer, that of its container comes after."""
    sharing = SharingNode(nodes, real_runtime)
    node, agent = sharing.node, sharing.share()
    eventually(lambda: shares_gpus(node))

    node.machine.say("fail nvmlDeviceSetMemoryLimits_v1 3 NO_PERMISSION")
    uid = sharing.start("two", 3, 10, 4)
    said = eventually(lambda: on_hold(node, "two"), within_seconds=60)
    assert "the agent may not set memory limits" in said
    assert [each for each in sharing.cgroup(uid).iterdir() if each.is_dir()] != [], "its sandbox is there"
    assert sharing.held() == set()

    node.machine.repair()
    eventually(lambda: is_running(node, "two"), within_seconds=90)
    assert Held(3, f"{QOS}/pod{uid}", 14.0) in sharing.held()
    eventually(lambda: sharing.is_held(uid, {3: 14}), within_seconds=60)

    agent.kill()
    sharing.load_driver_anew()
    agent.start()
    eventually(lambda: sharing.is_held(uid, {3: 14}), within_seconds=60)

    sharing.end("two")
    eventually(lambda: not sharing.cgroup(uid).exists(), within_seconds=60)
    sharing.release("two")
    eventually(lambda: sharing.held() == set(), within_seconds=60)


def test_every_container_is_held_to_its_share_through_kills(
    sharing_cluster: GpuCluster,
    nodes: Nodes,
    real_runtime: Runtime,
    rounds: Callable[[int, int], int],
    figure: Callable[[str], None],
) -> None:
    """Looked into while it runs: the GPU that it was told of, and the cgroup that it is in; at the end no limit is left."""
    pods = rounds(20, 500)
    with recorded(sharing_cluster.api) as history:
        limited = [LimitedNode(nodes, real_runtime, machine) for machine in ("hgx_h100", "two_islands")[: rounds(1, 2)]]
        agents, looks = [each.share() for each in limited], Looks(sharing_cluster, limited)
        victims = [process for process in nodes.components if process.name in ("agent", "kubelet")]
        with watched(limited) as unheld:
            with killing(victims, random.Random(8), every_seconds=rounds(6, 10)) as died:
                told = churn(
                    sharing_cluster, nodes, history, pods, random.Random(9),
                    shares=1.0, until_ran=pods // 2, look=looks.into,
                )  # fmt: skip
            eventually(lambda: all(each.offers_shares() for each in limited), within_seconds=240)
            last = [share_pod(f"last{number}", 4, schedulerName=SCHEDULER_NAME) for number in range(2 * len(limited))]
            looks.submit(last)
            for agent in agents:
                agent.kill()
            looks.end(last)
        for agent in agents:
            agent.run()
    assert history.violations() == []
    kept = assert_plans_kept(told, looks.seen)
    assert_amounts_kept(told)
    assert unheld == set()
    eventually(lambda: not any(each.held() for each in limited), within_seconds=120)
    figure(
        f"{told.created} pods with shares, killed {dict(Counter(died))}: {kept.words}, each in a cgroup that is held to its "
        f"pod's shares, never a process that was not; refused {refusals(told)}; no limit left"
    )
    assert len(died) >= rounds(1, 10)
    assert_none_lost(told, kept.pods, ran=pods // 2, more=len(last))


def test_driver_without_limits_is_told_where_the_operator_does_without(nodes: Nodes) -> None:
    """The pod runs, and the node says that nothing holds it; what others use of its GPUs is told as well."""
    sharing = SharingNode(nodes, None, said="driver 580.65.06\n")
    node, agent = sharing.node, sharing.share("preferred")
    eventually(lambda: shares_gpus(node))
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


class Looks:
    """Into the containers of running pods."""

    def __init__(self, cluster: GpuCluster, nodes: Iterable[LimitedNode]) -> None:
        self._cluster = cluster
        self._nodes = {each.node.name: each for each in nodes}
        self.seen: dict[Container, set[str]] = {}
        """What their processes were told of."""

    def into(self, pod: Json) -> None:
        """Return when all containers of a pod run in cgroups that are held to the pod's shares; note what they were told."""
        name = pod["metadata"]["name"]
        eventually(lambda: self._looked_into(name), within_seconds=240, every_seconds=0.5)

    def _looked_into(self, name: str) -> bool:
        pod = self._cluster.pod(name)
        if pod["status"]["phase"] != "Running":
            return True  # the kubelet came back and turned it away
        node, uid = self._nodes[pod["spec"]["nodeName"]], pod["metadata"]["uid"]
        plan, gib = self._cluster.placement(name), Counter[int]()
        for container, (gpu,) in plan.containers.items():
            gib[node.node.machine.uuids.index(gpu)] += plan.memory_gib[container]
        found: dict[Container, set[str]] = {}
        for status in pod["status"]["containerStatuses"]:
            cgroup = node.cgroup(uid) / status.get("containerID", "").removeprefix("containerd://")
            for told in node.seen_in(cgroup):
                found[name, status["name"]] = told
        if len(found) < len(plan.containers) or not node.is_held(uid, gib):
            return False
        self.seen |= found
        return True

    def submit(self, pods: Sequence[Json]) -> None:
        """Have pods started and looked into."""
        self._cluster.submit(*pods)
        wait_running(self._cluster, *(each["metadata"]["name"] for each in pods), within_seconds=240)
        for each in pods:
            self.into(each)

    def end(self, pods: Sequence[Json]) -> None:
        """Delete pods, and return when none has a cgroup."""
        found = [self._cluster.pod(each["metadata"]["name"]) for each in pods]
        for each in found:
            self._cluster.delete(each["metadata"]["name"])
        gone = [(self._nodes[each["spec"]["nodeName"]], [each["metadata"]["uid"]]) for each in found]
        eventually(lambda: all(node.have_gone(uids) for node, uids in gone), within_seconds=240)
