"""The chart's README: its prose is written by hand, and the table of values is made of `values.yaml` and its schema."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.manifests.helm import CHART
from tests.manifests.made_tables import MadeTables, default

WHOLE = {
    "resources",
    "config",
    "affinity",
    "nodeSelector",
    "labels",
    "annotations",
    "commonLabels",
    "podAnnotations",
    "podLabels",
    "securityContext",
    "containerSecurityContext",
    "updateStrategy",
    "namespaceSelector",
    "objectSelector",
    "seLinuxOptions",
}
"""Objects that are one value; what is in them belongs to Kubernetes or to our programs."""
LONGEST_DEFAULT = 80
"""Characters; what is longer is to be looked up."""


def table(values: str, schema: dict[str, Any]) -> str:
    """Return a row for each value, in their order."""
    lines, root = values.splitlines(), yaml.compose(values)
    assert isinstance(root, yaml.MappingNode)
    rows = [
        f"| `{'.'.join(path)}` | {_default(node)} | {takes(_part(schema, path), schema)} | {_comment(lines[:node_line])} |"
        for path, node, node_line in _leaves(root)
    ]
    return "\n".join(("| value | default | takes | what it is |", "|---|---|---|---|", *rows, ""))


def comments(values: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path of every value and its comment."""
    lines, root = values.splitlines(), yaml.compose(values)
    assert isinstance(root, yaml.MappingNode)
    for path, _, node_line in _leaves(root):
        yield path, _comment(lines[:node_line])


def takes(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """Say what a part of the schema admits.

    >>> takes({"type": "integer", "minimum": 1}, {}), takes({"enum": ["a", "b"]}, {}), takes({"type": "array"}, {})
    ('a whole number from 1', '`a`, `b`', 'a list')
    """
    if "$ref" in part:
        return takes(_referred(part, schema), schema)
    if "anyOf" in part:
        return ", or ".join(takes(each, schema) for each in part["anyOf"])
    if "enum" in part:
        return ", ".join(f"`{each}`" if each else "empty" for each in part["enum"])
    kinds = {
        "string": "text",
        "boolean": "`true`, `false`",
        "integer": "a whole number",
        "array": "a list",
        "object": "a map",
    }
    bounds = [f"{word} {part[key]}" for word, key in (("from", "minimum"), ("to", "maximum")) if key in part]
    named = [part["type"]] if isinstance(part["type"], str) else part["type"]
    return " ".join((" or ".join(kinds[name] for name in named), *bounds))


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return schema


def _leaves(mapping: yaml.MappingNode, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], yaml.Node, int]]:
    """Yield the path of every value, its node, and the line where its name stands."""
    for key, node in mapping.value:
        path = (*above, key.value)
        if isinstance(node, yaml.MappingNode) and key.value not in WHOLE and node.value:
            yield from _leaves(node, path)
        else:
            yield path, node, key.start_mark.line


def _part(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return what a schema says of the value at a path."""
    part = schema
    for name in path:
        part = _referred(part, schema)["properties"][name]
    return part


def _referred(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return schema["$defs"][part["$ref"].rsplit("/", 1)[-1]] if "$ref" in part else part


def _default(node: yaml.Node) -> str:
    return default(yaml.SafeLoader("").construct_document(node), LONGEST_DEFAULT, "see `values.yaml`")


def _comment(lines_above: list[str]) -> str:
    """Return the comment that ends here and begins with `# --`, as one line of a table."""
    found: list[str] = []
    for line in reversed(lines_above):
        words = re.sub(r"^\s*# (-- )?", "", line)
        found.insert(0, words)
        if line.lstrip().startswith("# -- "):
            break
    return " ".join(found).replace("|", "\\|")


README = MadeTables(CHART / "README.md", {"values": lambda: table((CHART / "values.yaml").read_text(), _schema())})
