"""The page of settings: its prose is written by hand, and its tables are made of the programs' configurations."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from agent.config import AgentConfiguration
from extender.config import ExtenderConfiguration
from tests.manifests.helm import MANIFESTS

PAGE = MANIFESTS.parent / "docs" / "reference" / "configuration.md"
PROGRAMS: dict[str, type[BaseModel]] = {"extender": ExtenderConfiguration, "agent": AgentConfiguration}
HEAD = {"apiVersion", "kind"}
"""What every document has, so no setting."""
LONGEST_DEFAULT = 60
"""Characters; `--print-config` has what is longer."""


def outdated() -> bool:
    """Whether the tables are not what the configurations give."""
    return PAGE.read_text(encoding="utf-8") != up_to_date()


def write() -> None:
    """Write the tables anew."""
    PAGE.write_text(up_to_date(), encoding="utf-8")


def up_to_date() -> str:
    """Return the page as it should be."""
    page = PAGE.read_text(encoding="utf-8")
    for program, configuration in PROGRAMS.items():
        begin, end = f"<!-- {program}, by `make manifests` -->\n", f"<!-- end of {program} -->\n"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{table(configuration)}{end}{after}"
    return page


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
        if issubclass(parent, BaseModel) and parent is not BaseModel:
            (defined,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
            assert isinstance(defined, ast.ClassDef)
            for field, below in zip(defined.body, defined.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    match below:
                        case ast.Expr(ast.Constant(str(words))):
                            found[field.target.id] = words
    return found


def _default(value: object) -> str:
    if value is None:
        return "not set"
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= LONGEST_DEFAULT else "`--print-config` shows it"


def _line(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")
