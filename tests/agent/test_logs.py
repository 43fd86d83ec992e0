"""One JSON object per line, bounded, whatever the values are."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from agent import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave logging to the other tests as it was."""
    handlers = logging.root.handlers[:]
    yield
    structlog.reset_defaults()
    logging.root.handlers[:] = handlers


def logged(style: str = "json") -> io.StringIO:
    """Start logging into memory."""
    stream = io.StringIO()
    logs.start("info", style, stream)  # type: ignore[arg-type]
    return stream


def test_line_is_json_with_the_four_first_keys() -> None:
    """Machines read it, and people find the time at the beginning."""
    stream = logged()
    structlog.get_logger().info("wrote the node", keys="a, b")
    line = json.loads(stream.getvalue())
    assert list(line) == ["ts", "level", "logger", "msg", "keys"]
    assert (line["level"], line["msg"]) == ("info", "wrote the node")


def test_value_cannot_end_a_line_or_fill_the_disk() -> None:
    """Reasons come from a driver and from an API server."""
    stream = logged()
    structlog.get_logger().warning("bad", reason="a\nb\x1b[31m\u202e" + "x" * 10_000)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().isascii()
    assert len(stream.getvalue()) < 500


def test_libraries_log_the_same_way() -> None:
    """What urllib3 has to say is a line like ours, with its name."""
    stream = logged()
    logging.getLogger("urllib3").warning("retrying %s", "x")
    assert json.loads(stream.getvalue())["logger"] == "urllib3"


def test_level_is_obeyed_and_text_is_for_people() -> None:
    """Nothing below the level; a trace on lines of its own."""
    stream = logged("text")
    structlog.get_logger().debug("no")
    structlog.get_logger().info("yes", number=1)
    assert "no" not in stream.getvalue()
    assert stream.getvalue().endswith("info agent yes number=1\n")
