"""Whatever happens to a machine, the agent that sees it through NVML and the command line that is told of it say the same."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.cli import app
from tests.agent.scripted.facts import SWITCH, as_lines, facts_of
from tests.agent.scripted.life import LOOK_SECONDS, Course, Life
from tests.invoking import call
from tests.nvml.library import HERE, FakeNvml, machine
from tests.nvml.script import Scripted, Step
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.status_codec import decode_status

SCRIPTS = sorted((HERE / "scripts").glob("*.script"))
UUIDS = [f"GPU-41000000-0000-4000-8000-00000000000{index}" for index in range(4)]
LATE_SECONDS = 2 * (LOOK_SECONDS + 60)
"""The agent needs two looks to see how fast a counter rises; in a storm of memory errors they are a minute further apart."""


def scripted(folder: Path, script: str) -> Scripted:
    """Return the machine with this script."""
    description = folder / "machine.nvml"
    description.write_text(machine("watched_h100").read_text())
    return Scripted(description, script)


def said_by_command(steps: tuple[Step, ...], folder: Path, until: float, restarts: tuple[float, ...]) -> Course:
    """Return GPU → its states, each with when, as `gputopo-bench health` prints them for the same story."""
    file = folder / "facts.jsonl"
    file.write_text(as_lines(facts_of(steps, UUIDS, restarts)))
    done = call(app, "health", str(file), "--until", str(until), "-o", "json")
    assert done.returncode == 0, done.stderr
    gpus = json.loads(done.stdout)["gpus"]
    return {gpu: [(change["t"], change["state"]) for change in changes] for gpu, changes in gpus.items() if changes}


def states(course: Course) -> dict[str, list[str]]:
    return {gpu: [state for _, state in changes] for gpu, changes in course.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "restarts",
    [pytest.param((), id="one agent"), pytest.param((250.0, 3500.0), id="three agents")],
)
@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in SCRIPTS])
def test_agent_and_command_line_are_one_machine(
    file: Path, restarts: tuple[float, ...], fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    """Each GPU has the same states, one after the other, and the agent has them two looks later at most."""
    played = scripted(tmp_path, file.read_text())
    until = played.steps[-1].at + 4800
    with fake_nvml.loaded(played.description):
        seen = Life(played, tmp_path).run(until, restarts)
    said = said_by_command(played.steps, tmp_path, until, restarts)
    assert said
    assert states(seen) == states(said)
    for gpu, changes in said.items():
        for (told, _), (found, _) in zip(changes, seen[gpu], strict=True):
            assert 0 <= found - told <= LATE_SECONDS


@pytest.mark.slow
def test_in_a_storm_of_memory_errors_nobody_is_sick_for_an_answer_that_is_late(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    """Calls that hang then say nothing of any GPU, and there is more time between two looks."""
    played = scripted(tmp_path, (HERE / "scripts" / "storm.script").read_text())
    with fake_nvml.loaded(played.description):
        life = Life(played, tmp_path, patience_seconds=2.0)
        life.run(2000.0)
    assert life.timed_out
    statuses = [decode_status(write[keys.STATUS]) for write in life.node.writes if keys.STATUS in write]
    assert {status.unhealthy for status in statuses} == {frozenset()}
    gaps = {end - begin for begin, end in pairwise(life.looks) if begin >= 120 and end <= 960}
    assert gaps == {LOOK_SECONDS + 60}
    assert life.looks[-1] - life.looks[-2] == LOOK_SECONDS


@pytest.mark.slow
def test_links_that_come_and_go_are_told_and_make_no_gpu_sick(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """Four links, which are used again when the command line says so, and then the fabric's manager."""
    played = scripted(tmp_path, (HERE / "scripts" / "link_flap.script").read_text())
    with fake_nvml.loaded(played.description):
        life = Life(played, tmp_path)
        life.run(1590.0)
    file = tmp_path / "facts.jsonl"
    file.write_text(as_lines(facts_of(played.steps, UUIDS)))
    said = json.loads(call(app, "health", str(file), "-o", "json").stdout)["links"][f"{UUIDS[0]}-{SWITCH}"]
    assert [change["state"] for change in said] == ["down", "up"]
    assert [dead for dead, _ in life.dead_links] == [0, 4, 0]
    for change, (_, found) in zip(said, life.dead_links[1:], strict=True):
        assert 0 <= found - change["t"] <= LATE_SECONDS
    status = decode_status(life.node.annotations[keys.STATUS])
    assert status.gpus[2].reasons == ("fabric manager gone",)
    assert status.unhealthy == frozenset()
    assert decode_topology(life.node.annotations[keys.TOPOLOGY]).gpus[2].switch_links == 0
