"""What a restart of an agent costs on real kubelets: how long its node takes no pods, and which pods are turned away."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event

from tests.cluster.api import ApiError
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes.agents import AgentProcess, enforcing, observing
from tests.cluster.nodes.closings import closings, why_closed
from tests.cluster.nodes.node import GpuNode
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import pod, status, submit
from tests.cluster.polling import eventually
from tests.manifests.rendered import SCHEDULER_NAME

_AT_ONCE = 6


def restart(agent: AgentProcess) -> float:
    """End the agent as a kubelet does, and start it when the cluster sees that it is gone; return when (monotonic)."""
    agent.stop()
    eventually(lambda: not agent.is_seen_ready())
    started = time.monotonic()
    agent.run()
    return started


def test_restart_in_mode_observe_closes_nothing(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None]
) -> None:
    """Another plugin goes on serving, and what the agent said last stands for a minute."""
    node = nodes.one("hgx_h100")
    wilful(node)
    agent = observing(node)
    eventually(lambda: not why_closed(node_cluster.extender, node.name))
    with closings(node_cluster.extender, node.name) as seen:
        restart(agent)
        time.sleep(1)
    figure(f"restart of an agent in mode observe: its node was closed for {seen.seconds():.1f} s")
    assert seen.reasons() == []


def test_restart_in_mode_enforce_turns_no_pod_away(
    node_cluster: GpuCluster, nodes: Nodes, figure: Callable[[str], None], rounds: Callable[[int, int], int]
) -> None:
    """The agent says that it goes and serves on until whoever was sent to it has come; the node opens when it is back."""
    node = nodes.one("hgx_h100")
    agent = enforcing(node)
    eventually(lambda: not why_closed(node_cluster.extender, node.name))
    slowest = 0.0
    with pods_coming(node) as became:
        for _ in range(rounds(2, 20)):
            ran = became["Running"]
            eventually(lambda: became["Running"] >= ran + 10)  # noqa: B023
            started = restart(agent)
            eventually(lambda: not why_closed(node_cluster.extender, node.name))
            slowest = max(slowest, time.monotonic() - started)
    figure(
        f"restart of an agent in mode enforce under load: {became['Running']} pods ran, {became['Failed']} were turned away; "
        f"the node was open again {slowest:.1f} s after the start at the latest"
    )
    assert became["Failed"] == 0


@contextmanager
def pods_coming(node: GpuNode) -> Iterator[Counter[str]]:
    """Let pods of one GPU come and go, as fast as they can, for the length of a `with` block; count what became of them."""
    became, over = Counter[str](), Event()

    def keep_coming(row: int) -> None:
        number = 0
        while not over.is_set():
            name, number = f"load-{row}-{number}", number + 1
            submit(node, pod(name, 1, schedulerName=SCHEDULER_NAME, terminationGracePeriodSeconds=0))
            while (phase := status(node, name)["phase"]) == "Pending" and not over.wait(0.02):
                pass
            became[phase] += 1
            with suppress(ApiError):
                node.plane.admin.delete(f"/api/v1/namespaces/default/pods/{name}")

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        rows = [threads.submit(keep_coming, row) for row in range(_AT_ONCE)]
        try:
            yield became
        finally:
            over.set()
    for row in rows:
        row.result()
