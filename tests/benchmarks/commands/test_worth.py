"""What free GPUs are worth, told to people."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from benchmarks.cli import app
from topology.effort import finish
from topology.formats.catalog import machine
from topology.placement.topology_class import TopologyClass
from topology.value.score import Weights

DEMAND = "1:0.4,2:0.35,4:0.25"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["value", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.slow
def test_value_is_what_plans_reckon_with() -> None:
    """The figures are those of the class that decides, for the same demand."""
    topology_class = TopologyClass(machine("dgx-1v"))
    finish(topology_class.appraise(Weights(demand=((1, 0.4), (2, 0.35), (4, 0.25)))))
    told = answer("dgx-1v", "--free", "0-4", "--demand", DEMAND)
    assert told["value"] == round(topology_class.value(0b11111), 3)
    assert told["value_of_all"] == round(topology_class.value(0b11111111), 3)


@pytest.mark.slow
def test_each_size_of_pod_is_told_what_it_takes_and_costs() -> None:
    """A single pod takes the GPU outside the island; four take the island; eight do not fit."""
    one, two, four, eight = answer("dgx-1v", "--free", "0-4")["pods"]
    assert one["takes"] == [4]
    assert one["loss"] < two["loss"] < four["loss"]
    assert (four["takes"], four["sets_left"]) == ([0, 1, 2, 3], 0)
    assert eight["takes"] is None
    assert "pod needs 8" in eight["reason"]


@pytest.mark.slow
def test_the_score_is_what_its_parts_say() -> None:
    """What the pod gains, less λ times what those to come lose; one GPU gains nothing from wires."""
    told = answer("dgx-1v", "--free", "0-4")
    placed = [pod for pod in told["pods"] if pod["takes"]]
    assert placed[0]["gain"] == 0
    for pod in placed:
        assert pod["score"] == pytest.approx(pod["gain"] - told["foresight"] * pod["loss"], abs=2e-3)


def test_a_machine_too_small_for_all_pods_is_worth_nothing_to_them() -> None:
    """And that is said, not that its free sets are too many."""
    told = run("dgx-1v", "--demand", "9:1")
    assert "worth 0 of 0 (no pod of this demand fits)" in told.stdout


@pytest.mark.slow
def test_the_table_says_the_same() -> None:
    """For reading, not for parsing."""
    told = run("dgx-1v", "--free", "0-4")
    assert told.exit_code == 0
    assert "free GPUs 0 1 2 3 4: worth" in told.stdout
    assert f"score = gain - {Weights().pods_to_come:g} x loss" in told.stdout


def test_a_demand_that_cannot_be_read_is_refused() -> None:
    """With the option, what it says, and an example."""
    told = run("dgx-1v", "--demand", "1:lots")
    assert told.exit_code == 2
    assert "--demand '1:lots': no list of size:share" in told.output
