"""Whatever is logged is one bounded line that a terminal shows and does not obey."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from extender.kit import logs


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave the logging of the other tests as it was."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers[:], logging.root.level = handlers, level


def lines(stream: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_a_json_object_that_begins_with_when_and_what() -> None:
    """Readers find the same four keys first, then the facts."""
    stream = io.BytesIO()
    logs.start("info", "json", stream)
    structlog.get_logger("extender.x").info("bound", pod="ml/p", duration_seconds=0.25)
    (line,) = lines(stream)
    assert list(line) == ["ts", "level", "logger", "msg", "pod", "duration_seconds"]
    assert (line["logger"], line["msg"], line["duration_seconds"]) == ("extender.x", "bound", 0.25)


def test_a_value_cannot_end_a_line_or_fill_the_disk() -> None:
    """Reasons come from a driver and from an API server."""
    stream = io.BytesIO()
    logs.start("info", "json", stream)
    structlog.get_logger("x").warning("bad", reason="a\nb\x1b[31m\u202e" + "x" * 10_000)
    assert stream.getvalue().count(b"\n") == 1
    assert stream.getvalue().decode()[:-1].isprintable()
    assert len(stream.getvalue()) < 500


def test_a_logger_without_a_name_has_that_of_its_program() -> None:
    """The agent's modules share one."""
    stream = io.BytesIO()
    logs.start("info", "json", stream, unnamed="agent")
    structlog.get_logger().info("wrote the node")
    logging.getLogger("urllib3").warning("retrying %s", "x")
    assert [line["logger"] for line in lines(stream)] == ["agent", "urllib3"]


def test_text_is_for_people() -> None:
    """One line begins with when and what, too."""
    stream = io.BytesIO()
    logs.start("info", "text", stream, unnamed="agent")
    structlog.get_logger().info("yes", number=1)
    assert stream.getvalue().endswith(b"info agent yes number=1\n")


def test_a_list_stays_a_list_of_bounded_values() -> None:
    """Eight GPU UUIDs are longer than one field may be, and who got which must be told whole."""
    stream = io.BytesIO()
    logs.start("info", "json", stream)
    structlog.get_logger("x").info("bound", gpus=["GPU-a", "\x1b", "x" * 1000], many=["y"] * 1000)
    (line,) = lines(stream)
    assert line["gpus"] == ["GPU-a", "\\u001b", "x" * logs.MAX_FIELD_CHARACTERS + "…"]
    assert len(line["many"]) == logs.MAX_ITEMS


@pytest.mark.parametrize("value", [{"pod": "x" * 10_000}, ("x" * 10_000,), OSError("x" * 10_000), object])
def test_a_value_of_any_other_type_is_bounded_text(value: object) -> None:
    """A caller may pass an error or a path as it is."""
    stream = io.BytesIO()
    logs.start("info", "json", stream)
    structlog.get_logger("x").info("bad", why=value)
    (line,) = lines(stream)
    assert line["why"] == logs.printable(str(value))


def test_lines_below_the_level_are_not_written() -> None:
    """The level is a floor."""
    stream = io.BytesIO()
    logs.start("warning", "json", stream)
    structlog.get_logger("x").info("quiet")
    structlog.get_logger("x").warning("loud")
    assert [line["msg"] for line in lines(stream)] == ["loud"]


def test_libraries_log_the_same_way() -> None:
    """Uvicorn and aiohttp use the standard library."""
    stream = io.BytesIO()
    logs.start("info", "json", stream)
    logging.getLogger("aiohttp.x").error("failed %d", 7)
    (line,) = lines(stream)
    assert (line["logger"], line["level"], line["msg"]) == ("aiohttp.x", "error", "failed 7")


def test_a_trace_stays_on_its_line() -> None:
    """An exception is one field of one object."""
    stream = io.BytesIO()
    logs.start("info", "json", stream)
    try:
        raise ValueError("boom\x1b[31m")
    except ValueError:
        structlog.get_logger("x").exception("died")
    (line,) = lines(stream)
    assert line["exception"].endswith("ValueError: boom\\u001b[31m")


@pytest.mark.slow
@given(st.text(), st.text(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Cs", "L"])))
def test_nothing_hostile_reaches_the_stream(key_text: str, value: str) -> None:
    """Controls, escape sequences, line ends, direction overrides and halves of characters are written out."""
    for style in ("json", "text"):
        stream = io.BytesIO()
        logs.start("info", style, stream)
        structlog.get_logger("x").info(key_text, pod=value, many=[value])
        written = stream.getvalue().decode()
        assert written.endswith("\n")
        assert written[:-1].isprintable()


@pytest.mark.slow
@given(st.text(min_size=300), st.integers(1, 50))
def test_a_field_is_bounded(text: str, limit: int) -> None:
    """An escape is at most ten characters long, and the cut is visible."""
    assert len(logs.printable(text)) <= 10 * logs.MAX_FIELD_CHARACTERS + 1
    assert logs.printable(text, limit).endswith("…")
