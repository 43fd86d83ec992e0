"""One JSON object per line: `ts level logger msg` and the facts, bounded, with no character that acts on a terminal.

Values come from users and from other machines, so nothing in them may end a line, colour a screen or turn text around.
Tokens, environments and whole pods are never logged.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, BinaryIO, Final, Literal

import msgspec

from extender.kit.plain_structlog import structlog

MAX_FIELD_CHARACTERS: Final = 256
MAX_ITEMS: Final = 64
MAX_TRACE_CHARACTERS: Final = 8192
_ORDER: Final = ("ts", "level", "logger", "msg")


def printable(text: str, limit: int = MAX_FIELD_CHARACTERS) -> str:
    r"""Return `text` on one line and in bounds, with every character written out that is not shown as itself.

    >>> printable("a\x1b[31mb\u202ec")
    'a\\u001b[31mb\\u202ec'
    """
    cut = text if len(text) <= limit else text[:limit] + "…"
    return cut if cut.isprintable() else "".join(char if char.isprintable() else _escaped(char) for char in cut)


def start(
    level: str, style: Literal["json", "text"], stream: BinaryIO | None = None, *, unnamed: str | None = None
) -> None:
    """Send structlog's loggers and those of the standard library to `stream`, standard error when not given.

    A logger without a name is called `unnamed`.
    """
    out = stream or sys.stderr.buffer
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", key="ts"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            _escape,
            _json if style == "json" else _text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: structlog.BytesLogger(out, name=names[0] if names else unnamed),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Forward()], level=logging.WARNING, force=True)


class _Forward(logging.Handler):
    """What libraries log takes the same way out."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info or None)


def _escape(_: object, __: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Make every value a bounded scalar, or a bounded list of them; a trace keeps its lines, each of them escaped."""
    for key, value in facts.items():
        if key == "exception":
            facts[key] = "\n".join(map(printable, value[-MAX_TRACE_CHARACTERS:].splitlines()))
        elif isinstance(value, str):
            facts[key] = printable(value)
        elif isinstance(value, list):
            facts[key] = [printable(str(item)) for item in value[:MAX_ITEMS]]
        elif not isinstance(value, int | float | None):
            facts[key] = printable(str(value))
    return facts


def _json(_: object, __: str, facts: MutableMapping[str, Any]) -> bytes:
    return msgspec.json.encode({**{key: facts.pop(key) for key in _ORDER}, **facts})


def _text(_: object, __: str, facts: MutableMapping[str, Any]) -> bytes:
    """For a terminal: the trace comes last, on lines of its own."""
    trace = facts.pop("exception", None)
    head = " ".join(str(facts.pop(key)) for key in _ORDER)
    line = " ".join([head, *(f"{key}={value}" for key, value in facts.items())])
    return (line if trace is None else f"{line}\n{trace}").encode(errors="replace")


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
