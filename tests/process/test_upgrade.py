"""From what was released to this version and back, replica by replica, while pods come and go."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.extender_process import Version
from tests.extender.polling import until
from tests.process.load import load
from tests.process.scheduler import Scheduler
from tests.process.tiers import everywhere
from tests.process.world import World
from tests.release.released import released

PODS_THERE = 24
BINDS_BETWEEN = 20


@pytest.fixture
def older(tmp_path: Path) -> Version:
    """Give what was released last."""
    if not (versions := released()):
        pytest.skip("this checkout has no history with a release")
    return Version.of(versions[0].unpack(tmp_path / "released"))


@everywhere
async def test_extenders_of_two_versions_work_side_by_side(world: World, older: Version) -> None:
    """Upgraded one by one, and taken back one by one: pods are bound all the time, and no GPU is given twice."""
    await world.join(SimulatedNode("n1", "dgx-2"), SimulatedNode("n2", "dgx-1v"))
    replicas = [await world.add() for _ in range(2)]
    for replica in replicas:
        replica.process.become(older)
        await replica.run()
    scheduler = world.schedule()
    async with load(world, PODS_THERE):
        for version in (Version(), older):
            for replica in replicas:
                bound = len(scheduler.bound)
                await until(partial(_has_bound, scheduler, bound + BINDS_BETWEEN))
                await replica.stop()
                replica.process.become(version)
                await replica.run()
        await until(partial(_has_bound, scheduler, len(scheduler.bound) + BINDS_BETWEEN))
    assert {attempt.replica for attempt in scheduler.bound} == {replica.name for replica in replicas}


def _has_bound(scheduler: Scheduler, pods: int) -> bool:
    return len(scheduler.bound) >= pods


def test_an_older_version_runs_from_its_own_files(older: Version, tmp_path: Path) -> None:
    """Not from those of this checkout, which is installed in the same environment."""
    *environment, module, name = map(str, older.program)
    where = f"import {name}; print({name}.__file__)"
    assert module == "-m"
    found = subprocess.run([*environment, "-c", where], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str(tmp_path / "released" / "extender" / "__init__.py")
