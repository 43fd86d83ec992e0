"""A pod is refused only after a second look, and answered after its search; whoever makes refusals or searches gains nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from extender.core.derivation import go_on_searching
from extender.core.second_looks import NEWS_SECONDS
from extender.features.configuration import load
from extender.kit.clock import Instant
from extender.kit.patience import MOST_SECONDS, NAMESPACES, SHARE, Patience
from extender.kubernetes.kube import KubeApi
from extender.service import Extender
from tests.extender.builders import args, node, pod
from tests.extender.virtual_time import in_virtual_time
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, Mode, NodeGpuStatus
from topology.placement.verdict import UNDECIDED

OBSERVED = encode_status(NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.OBSERVE, ready=True)))


def loop_time() -> Instant:
    now = asyncio.get_running_loop().time()
    return Instant(now, now)


def extender_with(tmp_path: Path, *machines: str) -> Extender:
    """Return an extender that knows one observed node of each machine, and of which nothing runs by itself."""
    extender = Extender(load(None, {}, {}), KubeApi.from_kubeconfig(tmp_path / "nobody"), clock=loop_time)
    extender.state.nodes.replaced([node(f"n{i}", name, status=OBSERVED) for i, name in enumerate(machines)])
    extender.state.pods.replaced([])
    return extender


@pytest.mark.parametrize("machine", ["dgx-1v", "l40s-8", "dgx-2"])
@in_virtual_time
async def test_the_first_pod_on_an_observed_machine_has_its_answer(tmp_path: Path, machine: str) -> None:
    """The forecast takes more than one call may; without a second look the pod would wait until something else happens."""
    extender = extender_with(tmp_path, machine)
    searches = asyncio.create_task(go_on_searching(extender.state.effort))
    result = await extender.filter(args(pod("p", 2), "n0"))
    searches.cancel()
    assert result.node_names == ["n0"]


@in_virtual_time
async def test_a_change_that_kube_scheduler_heard_of_first_counts(tmp_path: Path) -> None:
    """It asks because of a node that we hear of a moment later; refused now, the pod would wait until something else happens."""
    extender = extender_with(tmp_path)
    call = asyncio.create_task(extender.filter(args(pod("p", 1), "n0")))
    await asyncio.sleep(NEWS_SECONDS / 2)
    extender.state.nodes.changed(node("n0", "t4-4"))
    assert (await call).node_names == ["n0"]


@in_virtual_time
async def test_pods_that_fit_nowhere_cost_little(tmp_path: Path) -> None:
    """A hundred calls wait half a second together, and then as good as nothing."""
    extender = extender_with(tmp_path, "t4-4")
    began = loop_time().monotonic
    for number in range(100):
        assert not (await extender.filter(args(pod(f"p{number}", 5), "n0"))).node_names
    assert loop_time().monotonic - began <= 1.1 * MOST_SECONDS / (1 - SHARE)


@in_virtual_time
async def test_a_group_that_was_refused_before_is_not_waited_for_again(tmp_path: Path) -> None:
    """kube-scheduler tries a PodGroup again with every change in the cluster."""
    extender = extender_with(tmp_path, "t4-4")
    began, member = loop_time().monotonic, args(pod("p", 5, gang="train"), "n0")
    for _ in range(10):
        assert not (await extender.filter(member)).node_names
    assert loop_time().monotonic - began == pytest.approx(NEWS_SECONDS)


@in_virtual_time
async def test_searches_that_do_not_end_cost_calls_little(tmp_path: Path) -> None:
    """Nobody goes on with the search here: a hundred calls wait a second together, and then as good as nothing."""
    extender = extender_with(tmp_path, "dgx-1v")
    began, reasons = loop_time().monotonic, set[str]()
    for number in range(100):
        result = await extender.filter(args(pod(f"p{number}", 2), "n0"))
        reasons.update((result.failed_and_unresolvable_nodes or {}).values())
    assert loop_time().monotonic - began <= 2.2 * MOST_SECONDS / (1 - SHARE)
    assert reasons == {UNDECIDED.sentence}


def test_patience_comes_back_slowly() -> None:
    """A twentieth of the time, half of it for one namespace, and never more than the most."""
    patience = Patience()
    patience.spend("ml", 9.0)
    assert patience.left("ml", 0.0) == 0.0
    assert patience.left("ml", 2.0) == pytest.approx(2.0 * SHARE / 2)
    assert patience.left("ml", 1_000.0) == MOST_SECONDS


def test_one_tenants_waiting_uses_up_nobody_elses_patience() -> None:
    """However long it goes on."""
    patience = Patience()
    for second in range(100):
        patience.spend("evil", patience.left("evil", float(second)))
    assert patience.left("good", 100.0) == MOST_SECONDS
    assert patience.left("evil", 100.0) == pytest.approx(SHARE / 2)


def test_many_namespaces_wait_no_longer_than_few() -> None:
    """All calls are one scheduler's."""
    patience, waited = Patience(), 0.0
    for second in range(100):
        for number in range(2 * NAMESPACES):
            seconds = patience.left(f"t{number}", float(second))
            patience.spend(f"t{number}", seconds)
            waited += seconds
    assert waited == pytest.approx(2 * MOST_SECONDS + 99 * SHARE)
