"""The schema of the chart's values: the descriptions of values are their comments in `values.yaml`."""

import json
from typing import Any

from tests.manifests.helm import CHART
from tests.manifests.readme import comments

FILE = CHART / "values.schema.json"
LONGEST_LINE = 150
"""Characters; a shorter object or list stays on one line."""


def up_to_date() -> str:
    """Return the schema as it should be."""
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    for path, comment in comments((CHART / "values.yaml").read_text(encoding="utf-8")):
        if (part := _part(schema, path)) is not None:
            description = comment.replace("\\|", "|")
            kept = {name: value for name, value in part.items() if name != "description"}
            part.clear()
            part.update({"description": description, **kept})
    return f"{_lines(schema, '')}\n"


def outdated() -> bool:
    """Whether a description is not what `values.yaml` says."""
    return FILE.read_text(encoding="utf-8") != up_to_date()


def write() -> None:
    """Write the descriptions again."""
    FILE.write_text(up_to_date(), encoding="utf-8")


def _part(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    """Return what a schema says of the value at a path; None where several values share it."""
    part = schema
    for name in path:
        if "$ref" in part:
            return None
        part = part["properties"][name]
    return part


def _lines(value: object, indent: str) -> str:
    """Return JSON with an indent, but for what fits into one line.

    >>> print(_lines({"a": {"b": 1}, "c": []}, ""))
    {
      "a": {"b": 1},
      "c": []
    }
    """
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or (indent and len(indent) + len(short) <= LONGEST_LINE):
        return short
    deeper = f"{indent}  "
    if isinstance(value, list):
        return f"[\n{deeper}" + f",\n{deeper}".join(_lines(item, deeper) for item in value) + f"\n{indent}]"
    items = (f"{json.dumps(name)}: {_lines(item, deeper)}" for name, item in value.items())
    return f"{{\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}}}"
