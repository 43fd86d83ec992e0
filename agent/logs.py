"""One JSON object per line, `ts level logger msg` first, every value bounded and on one line; text for a terminal.

Values come from drivers, libraries and other machines, so nothing in them may end a line, colour a screen or turn text around.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

from extender.kit.plain_structlog import structlog

MAX_FIELD_CHARACTERS: Final = 256
_FIRST = ("ts", "level", "logger", "msg")


def start(level: str, style: Literal["json", "text"], stream: TextIO | None = None) -> None:
    """Send our own logs and those of libraries to `stream`, standard error when not given."""
    render = structlog.processors.JSONRenderer(ensure_ascii=True) if style == "json" else _text
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="ts"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            _bounded,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Forward()], level=logging.WARNING, force=True)


class _Forward(logging.Handler):
    """What libraries log takes the same way out."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().bind(logger=record.name).log(record.levelno, record.getMessage())


def _bounded(_: object, __: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    facts.setdefault("logger", "agent")
    kept = {key: facts.pop(key) for key in _FIRST} | dict(facts)
    return {key: _scalar(key, value) for key, value in kept.items()}


def _scalar(key: str, value: Any) -> Any:
    if isinstance(value, int | float | None):
        return value
    text = str(value)
    return text if key == "exception" or len(text) <= MAX_FIELD_CHARACTERS else text[:MAX_FIELD_CHARACTERS] + "…"


def _text(_: object, __: str, facts: MutableMapping[str, Any]) -> str:
    trace = facts.pop("exception", None)
    head = " ".join(printable(str(facts.pop(key))) for key in _FIRST)
    line = " ".join([head, *(f"{key}={value!r}" for key, value in facts.items())])
    return "\n".join([line, *map(printable, trace.splitlines())]) if trace else line


def printable(text: str) -> str:
    r"""Return `text` with every character written out that a terminal does not show as itself.

    >>> printable("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
