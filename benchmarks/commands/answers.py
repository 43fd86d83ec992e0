"""How commands answer: text or one JSON document on stdout, and bad input on stderr with exit code 2."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any, Final, NoReturn

import typer


class AnswerFormat(StrEnum):
    """What most commands print."""

    TEXT = "text"
    JSON = "json"


OUTPUT: Final = typer.Option("--output", "-o", help="How to print.")
OutputOption = Annotated[AnswerFormat, OUTPUT]


def reply(output: AnswerFormat, document: dict[str, Any], text: str) -> None:
    """Print the answer in this form."""
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
