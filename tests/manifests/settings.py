"""The page of settings: its prose is written by hand, and its tables are made of the programs' configurations."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from agent.config import AgentConfiguration
from extender.features.configuration import WholeConfiguration
from tests.manifests.helm import MANIFESTS
from tests.manifests.made_tables import MadeTables, default

HEAD = {"apiVersion", "kind"}
"""What every document has, so no setting."""
LONGEST_DEFAULT = 60
"""Characters; `--print-config` has what is longer."""


def table(configuration: type[BaseModel]) -> str:
    """Return a row for each setting, and one above each section, in their order."""
    defaults = configuration().model_dump(mode="json", by_alias=True)
    return "\n".join(("| setting | default | what it is |", "|---|---|---|", *_rows(configuration, defaults), ""))


def _rows(section: type[BaseModel], defaults: dict[str, Any], above: str = "") -> Iterator[str]:
    said = _docstrings(section)
    for name, field in section.model_fields.items():
        key = field.alias or name
        if not above and key in HEAD:
            continue
        kind, words = field.annotation, said.get(name, "")
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield f"| **`{above}{key}`** | | {_line(words or inspect.getdoc(kind) or '')} |"
            yield from _rows(kind, defaults[key], f"{above}{key}.")
        else:
            yield f"| `{above}{key}` | {_default(defaults[key])} | {_line(words)} |"


def _docstrings(section: type[BaseModel]) -> dict[str, str]:
    """Return what stands below each field, those of the class's parents included."""
    found: dict[str, str] = {}
    for parent in reversed(section.__mro__):
        if issubclass(parent, BaseModel) and parent not in (BaseModel, WholeConfiguration):  # the latter has no source
            (defined,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
            assert isinstance(defined, ast.ClassDef)
            for field, below in zip(defined.body, defined.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    match below:
                        case ast.Expr(ast.Constant(str(words))):
                            found[field.target.id] = words
    return found


def _default(value: object) -> str:
    return "not set" if value is None else default(value, LONGEST_DEFAULT, "`--print-config` shows it")


def _line(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


SETTINGS = MadeTables(
    MANIFESTS.parent / "docs" / "reference" / "configuration.md",
    {"extender": lambda: table(WholeConfiguration), "agent": lambda: table(AgentConfiguration)},
)
