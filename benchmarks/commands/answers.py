"""How commands answer: one JSON document or text on stdout, and bad input on stderr with exit code 2."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any, Final, NoReturn

import typer


class AnswerFormat(StrEnum):
    """What most commands print."""

    JSON = "json"
    TEXT = "text"


OUTPUT: Final = typer.Option(
    "--output", "-o", show_default=False, help="Default text on a terminal, and JSON elsewhere."
)
OutputOption = Annotated[AnswerFormat | None, OUTPUT]


def reply(output: AnswerFormat | None, document: dict[str, Any], text: str) -> None:
    """Print the answer in this form; `None`: text where a person looks on, else JSON."""
    output = output or (AnswerFormat.TEXT if sys.stdout.isatty() else AnswerFormat.JSON)
    if output is AnswerFormat.JSON:
        print_json(document)
    else:
        print(text)


def print_json(document: dict[str, Any]) -> None:
    """Print one document: on one line, unless a person looks on."""
    print(json.dumps(document, indent=2 if sys.stdout.isatty() else None))


def refuse(message: str) -> NoReturn:
    """Say what is wrong with the question, and end the command."""
    print(message, file=sys.stderr)
    raise typer.Exit(2)
