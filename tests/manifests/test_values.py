"""The chart's values are its user interface: each is documented where it stands, and each has a schema."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from agent.config import AgentConfiguration
from extender.features.configuration import WholeConfiguration
from tests.manifests import schema as values_schema
from tests.manifests.helm import CHART
from tests.manifests.images import IMAGES
from tests.manifests.metrics_page import METRICS
from tests.manifests.readme import README, WHOLE
from tests.manifests.settings import SETTINGS
from tests.release.plugin import URL

VALUES = (CHART / "values.yaml").read_text()


def test_every_value_is_documented() -> None:
    """A comment with `# --` stands above each."""
    lines, root = VALUES.splitlines(), yaml.compose(VALUES)
    assert isinstance(root, yaml.MappingNode)
    assert [lines[line] for line in value_lines(root) if not documented(lines[:line])] == []


def test_schema_knows_exactly_the_values() -> None:
    """A value without a schema would be refused, a schema without a value is forgotten."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"]  # Helm's own, for charts that include this one
    assert described(schema, schema) == names(yaml.safe_load(VALUES))


def test_every_property_of_the_schema_has_a_description() -> None:
    """Editors show it, and `make manifests` writes those of values."""
    assert sorted(undescribed(json.loads(values_schema.FILE.read_text()))) == []
    assert not values_schema.outdated()


def undescribed(part: Any, above: str = "") -> Iterator[str]:
    """Yield the path of every property without a description."""
    if isinstance(part, list):
        for item in part:
            yield from undescribed(item, above)
    elif isinstance(part, dict):
        for name, below in part.get("properties", {}).items():
            if not below.get("description", "").strip():
                yield f"{above}.{name}"
        for name, below in part.items():
            yield from undescribed(below, f"{above}.{name}")


@pytest.mark.parametrize(
    ("program", "configuration"), [("extender", WholeConfiguration), ("agent", AgentConfiguration)]
)
def test_every_section_of_a_configuration_can_be_set(program: str, configuration: type[BaseModel]) -> None:
    """Or is refused by name, because another value of the chart sets it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    sections = {field.alias for field in configuration.model_fields.values() if isinstance(field.default, BaseModel)}
    assert sections <= schema["properties"][program]["properties"]["config"]["properties"].keys()


def test_the_readme_lists_the_values_as_they_are() -> None:
    """`make manifests` would change nothing; each value has one row."""
    assert not README.outdated()
    named = re.findall(r"^\| `([\w.]+)` \|", README.page.read_text(), re.MULTILINE)
    assert sorted(named) == sorted({*paths(yaml.safe_load(VALUES))})


def test_the_page_on_the_chart_lists_the_images_of_the_rendered_copy() -> None:
    """`make manifests` would change nothing."""
    assert not IMAGES.outdated()
    assert "registry.k8s.io/kube-scheduler:" in IMAGES.tables["images"]()


def test_the_page_of_settings_is_what_the_configurations_give() -> None:
    """`make manifests` would change nothing, and no setting goes without a word."""
    assert not SETTINGS.outdated()
    assert re.findall(r"^\| .* \|  \|$", SETTINGS.page.read_text(), re.MULTILINE) == []


def test_the_page_of_metrics_is_what_the_programs_declare() -> None:
    """`make manifests` would change nothing, and no metric goes without a word."""
    assert not METRICS.outdated()
    assert re.findall(r"^- `[^`]+`: *$", METRICS.page.read_text(), re.MULTILINE) == []


def test_the_chart_says_where_it_is_from() -> None:
    """At the address of the plugin's manifest, with pages and a picture of this repository."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    links = yaml.safe_load(chart["annotations"]["artifacthub.io/links"])
    assert chart["home"] == URL and chart["sources"] == [URL] and chart["maintainers"]
    assert chart["kubeVersion"] == ">=1.30.0-0"
    paths = [
        chart["icon"].removeprefix(f"{URL}/raw/main/"),
        *(link["url"].removeprefix(f"{URL}/blob/main/") for link in links),
    ]
    assert len(paths) == 3 and all((CHART.parents[1] / path).is_file() for path in paths)


def paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Yield every value's name with dots; an empty map is one value."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in WHOLE:
            yield from paths(value, f"{above}{name}.")
        else:
            yield above + name


def value_lines(mapping: yaml.MappingNode) -> Iterator[int]:
    """Yield the line, from 0, of every value in a mapping and the mappings below it."""
    for key, value in mapping.value:
        if isinstance(value, yaml.MappingNode) and key.value not in WHOLE:
            yield from value_lines(value)
        else:
            yield key.start_mark.line


def documented(lines_above: list[str]) -> bool:
    """Whether the block of comments that ends here begins with `# --`."""
    for line in reversed(lines_above):
        if not line.lstrip().startswith("#"):
            return False
        if line.lstrip().startswith("# -- "):
            return True
    return False


def names(values: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of names in some values."""
    return {
        name: names(value) if isinstance(value, dict) and name not in WHOLE else {} for name, value in values.items()
    }


def described(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of names that a part of the whole schema describes."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    return {
        name: {} if name in WHOLE else described(below, whole) for name, below in schema.get("properties", {}).items()
    }
