"""Every gang of the queue starts whole, though its planner is killed and nodes leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import Installation
from tests.cluster.judgement import assert_invariants
from tests.cluster.polling import eventually
from tests.cluster.queueing import PLAIN, SETTINGS, ManyGangs
from tests.cluster.sweep import sweep
from tests.manifests.rendered import NAMESPACE, SCHEDULER_NAME

pytestmark = [pytest.mark.usefixtures("kubelets"), pytest.mark.slow]

LONGEST_HALF_SECONDS = 60.0
"""After which the alert for half gangs counts them; a restart of the planner is shorter."""


@pytest.fixture(params=[PLAIN, SCHEDULER_NAME])
def queue(request: pytest.FixtureRequest, installation: Installation) -> Iterator[tuple[GpuCluster, str]]:
    """Lend a planner, and one kube-scheduler: without any extender, or with ours."""
    plane, scheduler = installation.plane, request.param
    extender = installation.extender(SETTINGS)
    try:
        with installation.upgraded("extender.config.queue.enabled=true"), extender.running():
            if scheduler == PLAIN:
                plane.start_scheduler({"profiles": [{"schedulerName": PLAIN}]})
            else:
                installation.start_scheduler(extender)
            cluster = GpuCluster(plane, extender)
            yield cluster, scheduler
            assert_invariants(plane.admin, cluster.told())
    finally:
        plane.stop_schedulers()
        sweep(plane.admin, keep=[NAMESPACE])


def test_every_gang_starts_whole_though_the_planner_is_killed_and_nodes_leave(
    queue: tuple[GpuCluster, str],
    rounds: Callable[[int, int], int],
    goal: Callable[[float], float],
    figure: Callable[[str], None],
) -> None:
    """Each fits on the empty cluster. It ends once it is whole, and so makes room; one that stays half never ends."""
    cluster, scheduler = queue
    gangs, kills, losses = rounds(30, 1000), rounds(2, 20), rounds(1, 20)
    many = ManyGangs(cluster, scheduler, gangs, largest=rounds(8, 32), at_once=rounds(15, 40))
    many.join(rounds(12, 60))
    killed = left = 0

    def is_due(done: int, of: int) -> bool:
        """Rather while a gang starts, and late where none is seen to."""
        since, step = many.started - gangs * (done + 1) // (of + 1), gangs // (of + 1)
        return done < of and since >= 0 and (many.is_starting or since >= step // 2 or many.is_over)

    def all_is_done() -> bool:
        nonlocal killed, left
        many.look()
        assert many.longest_half_seconds < goal(LONGEST_HALF_SECONDS)
        if is_due(killed, kills):
            killed += 1
            cluster.extender.kill()
            cluster.extender.run()
        if is_due(left, losses):
            left += 1
            many.replace_node()
        return many.is_over and (killed, left) == (kills, losses)

    eventually(all_is_done, rounds(600, 7200), every_seconds=0.2)
    half = f"half for at most {many.longest_half_seconds:.1f} s"
    figure(f"queue, {scheduler}: {gangs} gangs whole, {half}; {killed} kills, {left} nodes and {many.lost} pods lost")
