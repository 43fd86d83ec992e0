"""What enforce mode gives that NVIDIA's device plugin cannot, measured on both."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.nodes import programs
from tests.cluster.nodes.agents import enforcing
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import nvidia
from tests.cluster.nodes.pods import bound_pod, pod
from tests.cluster.nodes.side_by_side import (
    Side,
    after_silent_loss,
    after_transient_xid,
    islands_broken,
    seconds_for_three_of_sixteen,
    with_asymmetric_links,
)
from tests.manifests.rendered import SCHEDULER_NAME

Sides = Callable[[str], tuple[Side, Side]]


@pytest.fixture
def sides(node_cluster: GpuCluster, nodes: Nodes, built: Callable[[GoBuild], Path]) -> Sides:
    """Return what gives a machine to each of the two."""
    folder = built(programs.NVIDIA)

    def start(machine: str) -> tuple[Side, Side]:
        theirs, ours = nodes.start({"n0": machine, "n1": machine})
        return (
            Side(
                "NVIDIA", node_cluster, theirs, nvidia(theirs, folder), lambda name, gpus: bound_pod(theirs, name, gpus)
            ),
            Side(
                "gputopo",
                node_cluster,
                ours,
                enforcing(ours),
                lambda name, gpus: pod(name, gpus, schedulerName=SCHEDULER_NAME),
            ),
        )

    return start


def test_islands_and_faults(sides: Sides, rounds: Callable[[int, int], int], figure: Callable[[str], None]) -> None:
    """Ours keeps islands whole, needs no symmetric links, loses one GPU and not the node, and recovers."""
    both, times = sides("two_islands"), rounds(3, 12)
    table = {f"pod of 2 breaks the untouched island, of {times}": [str(islands_broken(side, times)) for side in both]}
    for question, ask in (
        ("pod of 2 after another GPU was lost without an event", after_silent_loss),
        ("pod of 2 with asymmetric links", with_asymmetric_links),
        ("GPUs to have after a transient XID", after_transient_xid),
    ):
        for side in both:
            side.start_anew()
        table[question] = [ask(side) for side in both]
    figure(rows(table))
    assert [ours for _, ours in table.values()] == ["0", "runs", "runs", "8 of 8"]


def test_three_of_sixteen(sides: Sides, pytestconfig: pytest.Config, figure: Callable[[str], None]) -> None:
    """A pod of 3 on a machine of 16 is up in the time that every pod takes."""
    if not pytestconfig.getoption("--long"):
        pytest.skip("NVIDIA's plugin thinks for half a minute: only with --long")
    both = sides("two_islands_of_eight")
    theirs, ours = (seconds_for_three_of_sixteen(side) for side in both)
    figure(rows({"pod of 3 on 16 GPUs, creation to running": [theirs, ours]}))
    assert float(ours.removesuffix(" s")) < float(theirs.removesuffix(" s"))


def rows(table: dict[str, list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {question} | {' | '.join(answers)} |" for question, answers in table.items()]
    return "\n".join(["| | NVIDIA's plugin | gputopo, enforce |", "|---|---|---|", *lines])
