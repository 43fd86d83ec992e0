"""A thousand pods through the real scheduler, extender, kubelets and device plugins: each container gets exactly its plan."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from agent.plugin.devices.offers import gpu_of
from tests.cluster.admission import put_in_force, unbind_policies
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.history import History, recorded
from tests.cluster.nodes.agents import DEADLINE, PATIENT, enforcing
from tests.cluster.nodes.churn import RECALLED, Churn, Container, churn, most_at_once
from tests.cluster.nodes.killer import killing
from tests.cluster.nodes.kubelet import needs_a_newer_kubelet
from tests.cluster.nodes.nodes import Nodes
from topology.annotations import keys
from topology.annotations.records import decode_placement

MACHINES = {"n0": "hgx_h100", "n1": "two_islands", "n2": "dgx1v"}
FLEET = ("hgx_h100", "dgx1v", "two_islands", "pcie_l40s", "dgx_a100")


@pytest.fixture
def lawless(node_cluster: GpuCluster) -> Iterator[GpuCluster]:
    """Lend the cluster without its admission policies, so that forged records get as far as they can."""
    unbind_policies(node_cluster.plane)
    yield node_cluster
    put_in_force(node_cluster.plane)


@needs_a_newer_kubelet
def test_i1_every_started_container_holds_its_plan(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """I1: what was planned, what the kubelet lists and what was injected are the same GPUs, for every container."""
    pods = rounds(100, 1000)
    with lawful(lawless, nodes, MACHINES) as history:
        told = churn(lawless, nodes, history, pods, random.Random(0))
    started, at_once = assert_plans_kept(told, injected_on(nodes)), most_at_once(lawless.extender.said("bind"))
    figure(f"churn of {pods} pods on {len(MACHINES)} real kubelets: {started.words}; {at_once} binds at once")
    assert told.refused == {}
    assert_none_lost(told, started.pods, ran=0.6 * pods)
    assert at_once >= rounds(4, 8)


def test_hurried_agents_turn_pods_away_and_give_no_wrong_gpu(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """With the default deadline, on a machine that is busy: refusals are counted, and every started container has its plan."""
    pods = rounds(0, 200)
    if not pods:
        pytest.skip("two hundred pods take minutes: only with --long")
    with lawful(lawless, nodes, MACHINES, DEADLINE) as history:
        told = churn(lawless, nodes, history, pods, random.Random(2))
    started = assert_plans_kept(told, injected_on(nodes))
    figure(f"churn of {pods} pods, default deadline: {started.words}, refused {refusals(told)}")
    assert_none_lost(told, started.pods, ran=0.6 * pods)


def test_adopting_pods_start_and_share_no_gpu(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """With the default deadline and what pods ask for by default: refusals are counted, and no GPU is ever in two containers."""
    pods = rounds(0, 200)
    if not pods:
        pytest.skip("two hundred pods take minutes: only with --long")
    with recorded(lawless.api) as history:
        for node in nodes.start(MACHINES):
            enforcing(node, DEADLINE)
        told = churn(lawless, nodes, history, pods, random.Random(3), mismatch="adopt")
    planned, injected = told.planned(), injected_on(nodes)
    assert [each for each in told.held if each[1] != injected.get(each[0], each[1])] == []
    assert told.shared == set()
    others = sum(gpus != planned[container] for container, gpus in injected.items())
    figure(
        f"churn of {pods} adopting pods, default deadline: {len(injected)} containers started, {others} with other GPUs "
        f"than planned, no GPU in two; refused {refusals(told)}"
    )
    assert_none_lost(told, {pod for pod, _ in injected}, ran=0.6 * pods)


def test_fleet_of_twenty_kubelets(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """The same with twenty real kubelets at once, on machines of all kinds."""
    count, pods = rounds(0, 20), 200
    if not count:
        pytest.skip("twenty kubelets take minutes to start on a small machine: only with --long")
    machines = {f"n{number}": FLEET[number % len(FLEET)] for number in range(count)}
    with lawful(lawless, nodes, machines) as history:
        began = time.monotonic()
        told = churn(lawless, nodes, history, pods, random.Random(0))
        seconds = time.monotonic() - began
    started = assert_plans_kept(told, injected_on(nodes))
    figure(f"{pods} mixed pods on {count} real kubelets in {seconds:.0f} s: {started.words}")
    assert told.refused == {}
    assert_none_lost(told, started.pods, ran=0.6 * pods)


EXPLAINED = {
    "bound while no plugin was registered": "no healthy devices present",
    "GPUs of dead pods, from the kubelet's checkpoint": "requested number of devices unavailable",
    "refused by our plugin": "FailedPrecondition",
    "the plugin died while it was asked": "code = Unavailable",
    "the plugin died, and another one registered while it was asked": "code = Canceled",
    "the plugin died after its devices were chosen, and before it was asked": "has been stopped",
}
"""What a kubelet may say when it turns a pod away after a kill, and what it means."""


def test_no_kill_gives_a_container_a_wrong_gpu(
    lawless: GpuCluster, nodes: Nodes, rounds: Callable[[int, int], int], figure: Callable[[str], None]
) -> None:
    """I7: with `kill -9` of kubelets and agents every few seconds pods may be refused, for known reasons, and nothing worse."""
    pods = rounds(60, 1000)
    with lawful(lawless, nodes, MACHINES) as history:
        victims = [process for process in nodes.components if process.name in ("agent", "kubelet")]
        with killing(victims, random.Random(1), every_seconds=2) as died:
            told = churn(lawless, nodes, history, pods, random.Random(1), until_ran=pods // 2)
    kept = assert_plans_kept(told, injected_on(nodes))
    figure(f"churn of {pods} pods, killed {dict(Counter(died))}: {kept.words}, refused {refusals(told)}")
    assert len(died) >= 3
    assert_none_lost(told, kept.pods, ran=pods // 2)


@contextmanager
def lawful(
    cluster: GpuCluster, nodes: Nodes, machines: Mapping[str, str], deadline: str = PATIENT
) -> Iterator[History]:
    """Start nodes whose agents enforce, record what becomes of them, and fail at the end if it was ever wrong."""
    with recorded(cluster.api) as history:
        for node in nodes.start(machines):
            enforcing(node, deadline)
        yield history
    assert history.violations() == []


def assert_none_lost(told: Churn, started: AbstractSet[str], ran: float, more: int = 0) -> None:
    """Fail unless each pod was started, refused or recalled on its way, and at least `ran` pods were started.

    With kills `ran` is half of the planned pods, out of at most three times as many: at least every sixth pod has to run.
    It is no part of the pods created, because kills come by the clock, and pods as fast as the machine is: the slower the
    machine, the more kills meet each pod. `more` pods were created besides those of the churn.
    """
    assert len(started | told.refused.keys() | told.recalled) == told.created + more
    assert len(told.recalled) <= RECALLED * told.created
    assert len(started) >= ran


def refusals(told: Churn) -> dict[str, int]:
    """Count the pods that were turned away, by what the kubelet's reason means."""
    return dict(Counter(map(explanation, told.refused.values())))


def explanation(reason: str) -> str:
    """Return what a kubelet's refusal means; one that nobody has thought of fails the test."""
    (found,) = [meaning for meaning, words in EXPLAINED.items() if words in reason] or [reason]
    assert found in EXPLAINED, reason
    return found


@dataclass(frozen=True, slots=True)
class Kept:
    """How plans were kept."""

    containers: frozenset[Container]
    """Started, all with their plan."""
    on_hold: frozenset[Container]
    """Never started: the kubelet lists them with other GPUs, since the ledger could not be read in time."""

    @property
    def pods(self) -> frozenset[str]:
        """Their pods."""
        return frozenset(pod for pod, _ in self.containers)

    @property
    def words(self) -> str:
        """How many, for a person."""
        kept = f"{len(self.pods)} pods with {len(self.containers)} containers started, all with the planned GPUs"
        return f"{kept}; {len(self.on_hold)} got others and were never started" if self.on_hold else kept


def assert_plans_kept(told: Churn, injected: Mapping[Container, AbstractSet[str]]) -> Kept:
    """Fail if any container ever had other GPUs than its plan says; return those that were started, with what was injected."""
    planned = told.planned()
    assert injected == {container: planned[container] for container in injected}
    others = {container for container, gpus in told.held if gpus != planned[container]}
    assert others & injected.keys() == set()
    assert told.shared == set()
    return Kept(frozenset(injected), frozenset(others))


def assert_amounts_kept(told: Churn) -> None:
    """Fail if any container ever held more or less of its GPU than its Binding says."""
    asked: dict[tuple[str, str], int] = {}
    for found in told.history.objects("Pod"):
        text = found["metadata"].get("annotations", {}).get(keys.PLACEMENT)
        if "nodeName" in found["spec"] and text:
            for container, gib in decode_placement(text).memory_gib.items():
                asked[found["metadata"]["name"], container] = gib
    assert {(container, gib) for container, gib in told.gib if asked[container] != gib} == set()
    assert all(gpu_of(gpu) == gpu for _, gpus in told.held for gpu in gpus)


def injected_on(nodes: Nodes) -> dict[Container, set[str]]:
    """Return the GPUs that were injected into each container that was started; environment and CDI name the same."""
    started = [each for node in nodes for each in node.started() if each.pod.startswith("p")]  # others are agents
    assert [each for each in started if "NVIDIA_VISIBLE_DEVICES" not in each.env] == []
    injected = {(each.pod, each.container): set(each.env["NVIDIA_VISIBLE_DEVICES"].split(",")) for each in started}
    named = {(each.pod, each.container): {name.split("=")[1] for name in each.cdi_devices} for each in started}
    assert injected == named
    return injected
