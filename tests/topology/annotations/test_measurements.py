"""Measured figures are written and read without loss, and what is wrong is refused alone, with its path and the reason."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.annotations.measurements import MAX_BYTES, decode_measurements, encode_measurements
from topology.bandwidth.measured import Conditions, Figure, MeasuredMachine, kind_of, merged
from topology.bandwidth.predict import Wiring
from topology.errors import PayloadError, UnsupportedVersion
from topology.formats.catalog import machine
from topology.placement.measured_sets import kinds_of_sets

KIND = "0123456789abcdef"
GOOD = {"gpus": [0, 1], "gb_per_s": [40.0, 41.0], "message_bytes": 2**30, "node": "n1", "at": "2026-11-23T15:04:05Z"}
FIGURES = st.builds(
    Figure,
    gpus=st.sets(st.integers(0, 71), min_size=2, max_size=8).map(lambda gpus: tuple(sorted(gpus))),
    runs_gb_per_s=st.lists(st.floats(0.01, 1e6), min_size=1, max_size=5).map(tuple),
    conditions=st.builds(
        Conditions,
        node=st.just("n1"),
        at=st.just("2026-11-23T15:04:05Z"),
        message_bytes=st.integers(2**29, 2**34),
        driver=st.sampled_from([None, "570.124.06"]),
        nccl=st.sampled_from([None, "2.26.2"]),
    ),
)
MACHINES = st.builds(
    MeasuredMachine,
    st.just("8 x Tesla V100"),
    st.lists(FIGURES, max_size=4, unique_by=lambda figure: figure.gpus).map(tuple),
)


def document(*figures: object, **machine: object) -> str:
    said = {"kind": KIND, "description": "8 x Tesla V100", "figures": figures} | machine
    return json.dumps({"v": 1, "machines": [said]})


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"\A[0-9a-f]{16}\Z"), MACHINES, max_size=3))
def test_what_is_written_is_read_again(measurements: dict[str, MeasuredMachine]) -> None:
    """All figures come back with their conditions, and none is refused."""
    assert decode_measurements(encode_measurements(measurements)) == (measurements, ())


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"gb_per_s": [0.0]}, ".gb_per_s[0]", "greater than 0"),
        ({"gb_per_s": [-1.0]}, ".gb_per_s[0]", "greater than 0"),
        ({"gb_per_s": [2e6]}, ".gb_per_s[0]", "less than or equal to 1000000"),
        ({"gb_per_s": []}, ".gb_per_s", "at least 1 item"),
        ({"gb_per_s": [1.0] * 65}, ".gb_per_s", "at most 64 items"),
        ({"gb_per_s": ["fast"]}, ".gb_per_s[0]", "valid number"),
        ({"gpus": [1, 0]}, ".gpus", "places must rise"),
        ({"gpus": [0]}, ".gpus", "at least 2 items"),
        ({"gpus": [0, 72]}, ".gpus[1]", "less than 72"),
        ({"message_bytes": 2**20}, ".message_bytes", "greater than or equal to 536870912"),
        ({"at": "yesterday"}, ".at", "pattern"),
        ({"node": ""}, ".node", "at least 1 character"),
        ({"nccl": "\x1b[2J"}, ".nccl", "control"),
    ],
)
def test_a_figure_that_cannot_be_is_refused_alone(change: dict[str, object], path: str, reason: str) -> None:
    """The one beside it counts."""
    found = decode_measurements(document(GOOD | change, GOOD | {"gpus": [2, 3]}))

    assert [figure.gpus for figure in found.measurements[KIND].figures] == [(2, 3)]
    assert [refused.path for refused in found.refused] == [f"$.machines[0].figures[0]{path}"]
    assert reason in found.refused[0].reason


@pytest.mark.parametrize(
    ("figures", "refused"), [((GOOD, GOOD), "the same set twice"), (("GOOD", GOOD), "not a JSON object")]
)
def test_what_is_no_figure_or_said_twice_is_refused_alone(figures: tuple[object, ...], refused: str) -> None:
    """The first of two figures about a set counts."""
    found = decode_measurements(document(*figures))

    assert len(found.measurements[KIND].figures) == 1
    assert [error.reason for error in found.refused] == [refused]


def test_a_machine_that_cannot_be_read_is_refused_alone() -> None:
    """Its path says which one it is."""
    machines = [{"kind": "DGX", "description": "8", "figures": [GOOD]}, *json.loads(document(GOOD))["machines"] * 2]
    found = decode_measurements(json.dumps({"v": 1, "machines": machines}))

    assert list(found.measurements) == [KIND]
    assert [refused.path for refused in found.refused] == ["$.machines[0].kind", "$.machines[2].kind"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"machines": []}', "no version"),
        ('{"v": 1}', "field required"),
        ('{"v": 1, "machines": {}}', "valid list"),
        ('{"v": 1, "machines": [NaN]}', "NaN is not JSON"),
        ("[" * 100_000, "not JSON|nested too deeply"),
        (" " * (MAX_BYTES + 1), "larger than 262144 bytes"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_text_that_is_no_such_document_is_refused_whole(text: str | bytes, reason: str) -> None:
    """Nothing of it is believed."""
    with pytest.raises(PayloadError, match=reason):
        decode_measurements(text)


def test_a_later_version_is_not_guessed_at() -> None:
    """It is refused as such."""
    with pytest.raises(UnsupportedVersion):
        decode_measurements('{"v": 2, "machines": []}')


def test_new_figures_take_the_place_of_old_ones_about_the_same_set() -> None:
    """All others stay, and so do other machines."""
    old = decode_measurements(document(GOOD, GOOD | {"gpus": [0, 2]})).measurements
    new = decode_measurements(document(GOOD | {"gb_per_s": [50.0]})).measurements
    found = merged({**old, "f" * 16: old[KIND]}, new)

    assert {figure.gpus: figure.bandwidth.point for figure in found[KIND].figures} == {(0, 1): 50.0, (0, 2): 40.5}
    assert found["f" * 16] == old[KIND]


def test_the_page_shows_a_file_that_can_be_read() -> None:
    """Its kind is that of the machine that it describes, and the counts of its table are those of the catalogue."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "measure.md").read_text(encoding="utf-8")
    text = page.partition("```json\n")[2].partition("```")[0]
    found = decode_measurements(text)

    assert (found.refused, [*found.measurements]) == ((), [kind_of(machine("a100-pcie-8-pairs"))])
    for name in ("hgx-h100", "dgx-a100", "a100-pcie-8-pairs", "dgx-1v"):
        node = machine(name)
        kinds = sum(len(kinds_of_sets(node, Wiring(node), size)) for size in range(2, 9))
        assert re.search(rf"^\| .*`{name}`.* \| {kinds} \|$", page, re.MULTILINE), (name, kinds)
