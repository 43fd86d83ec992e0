"""The limit above which no figure is believed lies above every figure that was published."""

from pathlib import Path

import pytest

from benchmarks.accuracy.measurements import read_measurements
from benchmarks.sources import load_topology
from topology.bandwidth.collectives import Collective
from topology.bandwidth.measured import limit_gb_per_s
from topology.bandwidth.predict import Wiring, predict
from topology.formats.catalog import MACHINES, machine
from topology.placement.measured_sets import kinds_of_sets

UNSEEN = Path(__file__).resolve().parents[3] / "benchmarks" / "accuracy" / "unseen"


def found(name: str, folders: tuple[Path, ...]) -> str:
    files = (folder / f"{name}{suffix}" for folder in folders for suffix in (".topo.txt", "-topo.xml"))
    return next((str(file) for file in files if file.is_file()), name)


def test_no_published_all_reduce_reaches_the_limit(shared_dir: Path) -> None:
    """156 figures of both tables, those of patched drivers too; the nearest reaches 84 % of it."""
    published, unseen = shared_dir / "bandwidth", UNSEEN
    folders = {
        published / "measured.csv": (shared_dir / "topologies", published / "machines"),
        unseen / "measured.csv": (unseen / "machines",),
    }
    shares = []
    for table, where in folders.items():
        for row in read_measurements(table):
            if row.collective is Collective.ALL_REDUCE:
                node = load_topology(found(row.topology, where), row.gpu_model)
                members = sum(1 << node.positions[index] for index in row.gpus)
                shares.append(row.bus_bandwidth_gb_per_s / limit_gb_per_s(Wiring(node), members))

    assert len(shares) == 156
    assert 0.8 < max(shares) < 0.9


@pytest.mark.parametrize("name", MACHINES)
def test_no_prediction_reaches_the_limit(name: str) -> None:
    """Not at its high end either: what a machine may well do is never refused."""
    node = machine(name)
    wiring = Wiring(node)
    for size in range(2, min(len(node), 8) + 1):
        for mask in kinds_of_sets(node, wiring, size):
            assert predict(wiring, mask)[0].high < limit_gb_per_s(wiring, mask)
