"""The file of measured bandwidths: what it says is in force everywhere, and what is wrong with it harms nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import Result

from benchmarks.simulated.fleet import SimulatedNode
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop
from extender.cluster.objects.kinds import Pod
from extender.cluster.state import ClusterState
from extender.features.measured.feature import MeasuredFile
from extender.inspect import inspection
from extender.inspect.what_if import what_if
from extender.inspect.why import why
from extender.kubectl.form import Form
from extender.kubectl.output import print_measured
from extender.verbs.filter_prioritize import filter_nodes, prioritize_nodes
from tests.extender.builders import PAIRS, args, at, cluster, node, pod
from tests.extender.plugin import invoke
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from topology.annotations import keys
from topology.annotations.measurements import encode_measurements
from topology.bandwidth.measured import Conditions, Figure, MeasuredMachine, kind_of
from topology.formats.catalog import machine
from topology.placement.verdict import Placement
from topology.request.gpu_request import GpuRequest

DGX = "dgx-1v"
CONDITIONS = Conditions("n9", "2026-11-23T15:04:05Z", 2**30, "570.124.06", "2.26.2")


def measured(name: str = PAIRS, gb_per_s: float = 120.0, gpus: tuple[int, ...] = (0, 1)) -> str:
    figure = Figure(gpus, (gb_per_s,), CONDITIONS)
    return encode_measurements({kind_of(machine(name)): MeasuredMachine(name, (figure,))})


def pair(**wants: str) -> Pod:
    return pod("p1", 2, wants={f"gputopo.dev/{key.replace('_', '-')}": value for key, value in wants.items()})


def looked(state: ClusterState, path: Path, text: str | None) -> MeasuredFile:
    if text is not None:
        path.write_text(text)
    found = MeasuredFile(path, state)
    found.look()
    return found


def best(state: ClusterState, asked: Pod, name: str = "n1") -> Placement:
    found = state.views[name].shape.decide(GpuRequest.plain(2))
    assert isinstance(found, Placement)
    return found


def test_every_answer_stands_on_what_was_measured(tmp_path: Path) -> None:
    """Filter, prioritize, explain, why and what-if agree that a bridge is slower than the model thinks."""
    asked = pair(min_bandwidth="200")
    state = cluster(node("n1", PAIRS), node("n2", "hgx-h100"), asked)
    before = filter_nodes(state, args(asked, "n1", "n2"), at(), candidates=16, hold_seconds=1)
    looked(state, tmp_path / "measured.json", measured())
    after = filter_nodes(state, args(asked, "n1", "n2"), at(), candidates=16, hold_seconds=1)

    assert (set(before.node_names), list(after.node_names)) == ({"n1", "n2"}, ["n2"])
    told = inspection.explain(state, "ml", "p1", at())
    assert told is not None
    assert [fitting.node for fitting in told.fits] == ["n2"]
    rules = why(state, "ml", "p1", at(), limit=9)
    assert rules is not None
    assert [verdict.figures for verdict in rules.nodes if verdict.node == "n1"] == ["the best reach 120 GB/s"]
    assert [fitting.node for fitting in what_if(state, pair(min_bandwidth="200"), at()).fits] == ["n2"]


def test_nodes_are_ranked_by_what_was_measured(tmp_path: Path) -> None:
    """Where bridges turn out slow, a pod goes to the other machine, which the model likes less."""
    asked = pair()
    state = cluster(node("n1", PAIRS), node("n2", DGX), asked)
    looked(state, tmp_path / "measured.json", measured(gb_per_s=2.0))
    scores = {each.host: each.score for each in prioritize_nodes(state, args(asked, "n1", "n2"), at(), hold_seconds=1)}

    assert scores["n2"] > scores["n1"]
    fresh = cluster(node("n1", PAIRS), node("n2", DGX), asked)
    plain = {each.host: each.score for each in prioritize_nodes(fresh, args(asked, "n1", "n2"), at(), hold_seconds=1)}
    assert plain["n1"] > plain["n2"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON: expecting property name enclosed in double quotes at character 1 @ $"),
        ('{"v": 2, "machines": []}', "only version 1 is understood @ $.v"),
        ('{"v": 1, "machines": 7}', "input should be a valid list @ $.machines"),
        (" " * 300_000, "larger than 262144 bytes @ $"),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path, text: str, problem: str) -> None:
    """What it said before stands; log, gauge and report name the key and the reason, once."""
    state, path = cluster(node("n1", PAIRS)), tmp_path / "measured.json"
    file = looked(state, path, measured())
    path.write_text(text)
    with capture_logs() as logs:
        file.look()
        file.look()

    assert best(state, pair()).bandwidth is not None
    assert best(state, pair()).bandwidth.point == 120.0  # type: ignore[union-attr]
    assert [line["problem"] for line in logs] == [problem]
    report = file.report()
    assert report.problem == problem
    assert file.figures()["measured_unreadable"] == 1
    path.write_text(measured(gb_per_s=130.0))
    file.look()
    assert best(state, pair()).bandwidth.point == 130.0  # type: ignore[union-attr]
    assert file.figures()["measured_unreadable"] == 0


def test_a_file_that_is_taken_away_takes_its_figures_along(tmp_path: Path) -> None:
    """All is predicted again, as before; that is no complaint."""
    state, path = cluster(node("n1", PAIRS)), tmp_path / "measured.json"
    before = best(state, pair())
    file = looked(state, path, measured())
    path.unlink()
    file.look()

    assert best(state, pair()) == before
    assert file.problem is None


def test_a_file_that_nobody_may_read_is_told_and_read_once_that_is_mended(tmp_path: Path) -> None:
    """A folder in its place is such a file for everybody, root too."""
    state, path = cluster(node("n1", PAIRS)), tmp_path / "measured.json"
    path.mkdir()
    with capture_logs() as logs:
        file = looked(state, path, None)
        file.look()
    before = file.problem
    path.rmdir()
    path.write_text(measured())
    file.look()

    assert (before, file.problem) == ("Is a directory", None)
    assert [line["problem"] for line in logs] == ["Is a directory"]
    assert file.figures()["measured_figures"] == 1


def test_a_figure_that_cannot_be_is_refused_alone_and_told_once(tmp_path: Path) -> None:
    """By its form or by what the wires can carry; the others are in force, and machines that nobody has are no complaint."""
    document = json.loads(measured())
    good = document["machines"][0]["figures"][0]
    document["machines"][0]["figures"] += [good | {"gpus": [0, 2], "gb_per_s": [9000.0]}, good | {"gpus": [3, 0]}]
    document["machines"] += json.loads(measured("t4-4"))["machines"]
    state = cluster(node("n1", PAIRS))
    with capture_logs() as logs:
        file = looked(state, tmp_path / "measured.json", json.dumps(document))
        file.look()

    assert [line["problem"] for line in logs if line["log_level"] == "warning"] == sorted(file.refused)
    assert [refusal.split(" @ ")[1] for refusal in file.refused] == [
        "$.machines[0].figures[2].gpus",
        f"machine {kind_of(machine(PAIRS))}, GPUs 0,2",
    ]
    assert "and these wires carry at most" in file.refused[1]
    assert (file.figures()["measured_figures"], file.figures()["measured_refused"]) == (1, 2)


def test_a_node_that_joins_later_stands_on_the_figures(tmp_path: Path) -> None:
    """Nobody has to read the file again for it."""
    state = cluster(node("n1", DGX))
    looked(state, tmp_path / "measured.json", measured())
    state.nodes.changed(node("n2", PAIRS))

    assert best(state, pair(), "n2").bandwidth.point == 120.0  # type: ignore[union-attr]


def test_the_report_says_where_the_model_errs(tmp_path: Path) -> None:
    """Each figure beside its prediction, the farthest off first; the gauge has that one."""
    state = cluster(node("n1", PAIRS), node("n2", PAIRS))
    predicted = best(state, pair()).bandwidth
    assert predicted is not None
    file = looked(state, tmp_path / "measured.json", measured(gb_per_s=predicted.point / 2))
    report = file.report()
    (row,) = report.sets

    assert (row.gpus, row.measured.point, row.predicted.point) == ((0, 1), predicted.point / 2, predicted.point)
    assert row.error_ratio == pytest.approx(-0.5)
    assert not row.is_inside
    assert (row.node, row.driver, row.nccl, row.runs) == ("n9", "570.124.06", "2.26.2", 1)
    assert file.figures()["measured_error_ratio"] == pytest.approx(0.5)


async def placed(extender: Running) -> BoundPod:
    loop = SchedulerLoop(extender.api, extender.session, extender.url)
    found = await loop.schedule(await extender.create("pair", 2))
    assert isinstance(found, BoundPod)
    return found


@pytest.mark.slow
async def test_what_is_written_and_shown_says_that_it_is_measured(tmp_path: Path) -> None:
    """The pod's record, its event, the pages, the JSON and the metrics; a file that changes is read again."""
    path = tmp_path / "measured.json"
    path.write_text(measured())
    settings = {"measured.file": str(path), "measured.reread": "20ms"}
    async with serving(tmp_path, SimulatedNode("n1", PAIRS), settings=settings) as extender:
        found = await placed(extender)
        made = (await extender.api.call("GET", "/api/v1/namespaces/default/pods/pair")).ok()
        record = json.loads(made["metadata"]["annotations"][keys.PLACEMENT])
        assert record["bandwidth_gb_per_s"] == {"low": 120.0, "point": 120.0, "high": 120.0, "measured": True}
        assert found.record.bandwidth is not None
        assert found.record.bandwidth.measured
        page = (await extender.get("/nodes/n1"))[1]
        assert "120  (120–120) measured" in page
        assert "kinds of GPU sets that are measured: 1" in (await extender.get("/"))[1]
        assert json.loads((await extender.get("/v1/inspect/measured"))[1])["sets"][0]["gpus"] == [0, 1]
        assert "gputopo_measured_figures 1.0" in (await extender.get("/metrics", extender.health_url))[1]
        path.write_text(measured(gb_per_s=99.0))

        async def is_read_again() -> bool:
            return "99  (99–99) measured" in (await extender.get("/nodes/n1"))[1]

        await eventually(is_read_again)


@pytest.mark.slow
async def test_without_a_file_nothing_is_said_of_measuring(tmp_path: Path) -> None:
    """Record, pages, JSON and metrics are what they were."""
    async with serving(tmp_path, SimulatedNode("n1", PAIRS)) as extender:
        await placed(extender)
        made = (await extender.api.call("GET", "/api/v1/namespaces/default/pods/pair")).ok()
        shown = [(await extender.get(path))[1] for path in ("/", "/nodes/n1", "/v1/inspect/nodes/n1")]
        shown.append((await extender.get("/metrics", extender.health_url))[1])

        assert "measured" not in made["metadata"]["annotations"][keys.PLACEMENT]
        assert not [text for text in shown if "measured" in text]
        assert json.loads((await extender.get("/v1/inspect/measured"))[1])["file"] is None


@pytest.mark.slow
async def test_kubectl_shows_what_the_extender_goes_by(tmp_path: Path) -> None:
    """A row for each figure, what is not believed, and exit 1 where there is such."""
    path = tmp_path / "measured.json"
    document = json.loads(measured())
    figures = document["machines"][0]["figures"]
    path.write_text(json.dumps(document))
    settings = {"measured.file": str(path), "measured.reread": "20ms"}
    async with serving(tmp_path, SimulatedNode("n1", PAIRS), settings=settings) as extender:

        async def told(*arguments: str) -> Result:
            return await asyncio.to_thread(invoke, "measured", "--extender", extender.url, *arguments)

        good = await told()
        figures.append(figures[0] | {"gpus": [0, 2], "gb_per_s": [-1.0]})
        path.write_text(json.dumps(document))

        async def is_refused() -> bool:
            return (await told()).exit_code == 1

        await eventually(is_refused)
        bad = await told()

    assert good.exit_code == 0
    head, row = good.stdout.splitlines()
    assert head.split() == ["MACHINE", "GPUS", "MEASURED-GB/S", "PREDICTED-GB/S", "OFF-BY", "INSIDE", "RUNS", "AT"]
    assert row.split()[:4] == [kind_of(machine(PAIRS)), "0,1", "120", "(120-120)"]
    assert bad.stdout.startswith("not believed: input should be greater than 0 @ $.machines[0].figures[1].gb_per_s[0]")


def test_kubectl_names_the_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lies where the extender runs, and no longer says what is in force."""
    path = tmp_path / "measured.json"
    print_measured(looked(cluster(node("n1", PAIRS)), path, "[]").report(), Form())
    assert f"\nnot believed: {path}: " in capsys.readouterr().out


@pytest.mark.slow
async def test_kubectl_says_that_nothing_is_measured(tmp_path: Path) -> None:
    """Without an extender to ask there is no answer, and without a file nothing to show."""
    async with serving(tmp_path, SimulatedNode("n1", PAIRS)) as extender:
        told = await asyncio.to_thread(invoke, "measured", "--extender", extender.url)

    assert (told.exit_code, told.stdout) == (0, "no file of measured bandwidths is configured; all is predicted\n")
    assert invoke("measured").exit_code == 2
    assert invoke("measured", "--extender", extender.url).exit_code == 2
