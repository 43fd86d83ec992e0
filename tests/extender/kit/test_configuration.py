"""Agent and extender read their configurations by the same rules; text from outside is never taken for something else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import AgentConfiguration
from extender.features.configuration import WholeConfiguration
from extender.kit.configuration import OTHER_VARIABLES, ConfigurationError, Document, load, variables_of
from extender.kit.settings import Duration, Section

ROOT = Path(__file__).parents[3]
DOCUMENTS = [AgentConfiguration, WholeConfiguration]
PROGRAMS = ("agent", "benchmarks", "extender", "manifests", "tests")
SUFFIXES = {".c", ".go", ".py", ".sh", ".tpl", ".yaml"}


class Waiting(Section):
    """A section with one duration."""

    wait: Duration


@pytest.mark.parametrize("document_type", DOCUMENTS)
@pytest.mark.parametrize("separated", ["a,b", "[a, b]"])
def test_every_setting_can_be_given_as_text(document_type: type[Document], separated: str) -> None:
    """The text of a default is the default, for lists in both of their forms."""
    defaults = document_type().model_dump(mode="json", by_alias=True)
    variables = variables_of(document_type)
    values = {path: value for path in variables.values() if (value := value_at(defaults, path)) is not None}
    settings = {path: as_text(value, separated) for path, value in values.items()}
    environment = {name: settings[path] for name, path in variables.items() if path in settings}
    for loaded in (load(document_type, None, environment, {}), load(document_type, None, {}, settings)):
        given = loaded.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert {path: value_at(given, path) for path in settings} == values


@pytest.mark.parametrize("text", ["007", "0x10", "true", "null", "~", "'a", "it's", "[a", "a: b", "1e3"])
def test_text_stays_as_it_is(text: str) -> None:
    """A namespace and a node may be called like a number or a word of YAML."""
    assert load(WholeConfiguration, None, {"GPUTOPO_AGENTS_NAMESPACE": text}, {}).agents.namespace == text
    assert load(WholeConfiguration, None, {}, {"agents.namespace": text}).agents.namespace == text
    assert load(AgentConfiguration, None, {"GPUTOPO_NODE_NAME": text}, {}).node_name == text


@pytest.mark.parametrize(
    ("text", "host"),
    [('"10.0.0.1"', "10.0.0.1"), ("'::1'", "::1"), ('"', '"'), ('"a" or "b"', '"a" or "b"')],
)
def test_quotes_around_a_text_are_left_out(text: str, host: str) -> None:
    """A pod that a chart of version 0.1 made starts this version with them, when only its image is replaced."""
    assert load(WholeConfiguration, None, {}, {"health.host": text}).health.host == host


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ("a", "b")),
        ("[a, b]", ("a", "b")),
        (" a, b ,", ("a", "b")),
        ("007", ("007",)),
        ("[007]", ("007",)),
        ("", ()),
        ("[]", ()),
    ],
)
def test_lists_are_separated_by_commas_or_written_as_yaml(text: str, names: tuple[str, ...]) -> None:
    """Both programs read both forms."""
    extender = load(WholeConfiguration, None, {"GPUTOPO_SCHEDULING_SCHEDULER_NAMES": text}, {})
    agent = load(AgentConfiguration, None, {"GPUTOPO_DISCOVERY_IGNORED_PROCESSES": text}, {})
    assert (extender.scheduling.scheduler_names, agent.discovery.ignored_processes) == (names, names)


def test_command_line_adds_to_a_mapping_of_the_environment() -> None:
    """A mapping is YAML; a dotted path names one of its keys."""
    environment = {"GPUTOPO_SCHEDULING_DEMAND": "{1: 0.5, 2: 0.5}"}
    loaded = load(WholeConfiguration, None, environment, {"scheduling.demand.2": "1.5"})
    assert loaded.scheduling.demand == {1: 0.5, 2: 1.5}


@pytest.mark.parametrize("document_type", DOCUMENTS)
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("GPUTOPO_LOG_LEVLE", "GPUTOPO_LOG_LEVLE: unknown variable; did you mean GPUTOPO_LOG_LEVEL?"),
        ("GPUTOPO_SOMETHING", "GPUTOPO_SOMETHING: unknown variable"),
    ],
)
def test_unknown_variables_are_refused(document_type: type[Document], name: str, problem: str) -> None:
    """With the nearest name, if there is one."""
    with pytest.raises(ConfigurationError) as caught:
        load(document_type, None, {name: "debug"}, {})
    assert str(caught.value) == problem


@pytest.mark.parametrize("document_type", DOCUMENTS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPUTOPO_EXTENDER_SERVICE_HOST", "10.96.0.1"),
        ("GPUTOPO_EXTENDER_SERVICE_PORT", "443"),
        ("GPUTOPO_EXTENDER_SERVICE_PORT_HTTPS", "443"),
        ("GPUTOPO_EXTENDER_PORT", "tcp://10.96.0.1:443"),
        ("GPUTOPO_EXTENDER_PORT_443_TCP", "tcp://10.96.0.1:443"),
        ("GPUTOPO_EXTENDER_PORT_443_TCP_ADDR", "10.96.0.1"),
        ("GPUTOPO_PORT", "tcp://10.96.0.1:443"),
        ("GPUTOPO_HEALTH_PORT", "udp://10.96.0.1:53"),
        *((name, "x") for name in sorted(OTHER_VARIABLES)),
        ("OTHER_LOG_LEVEL", "debug"),
    ],
)
def test_variables_of_services_and_other_programs_are_passed_over(
    document_type: type[Document], name: str, value: str
) -> None:
    """Kubernetes sets variables for a Service, even for one called like a section of ours."""
    assert load(document_type, None, {name: value}, {}) == document_type()


@pytest.mark.slow
def test_every_variable_in_our_code_is_a_setting_or_listed() -> None:
    """A new variable of another program must not stop agent and extender, and the list has nothing else."""
    files = [file for folder in PROGRAMS for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES]
    ours = {Path(__file__), ROOT / "extender/kit/configuration.py"}
    texts = [file.read_text() for file in (*files, ROOT / "Makefile") if file not in ours]
    mentioned = {
        name for text in texts for name in re.findall(r"(?:[\"'`]|\$[({]?|name: )(GPUTOPO_[A-Z_]*[A-Z])", text)
    }
    settings = variables_of(AgentConfiguration).keys() | variables_of(WholeConfiguration).keys()
    services = {name for name in mentioned if "_SERVICE_" in name}
    assert mentioned - settings - services == OTHER_VARIABLES


def test_every_problem_names_its_source_and_all_are_reported_at_once(tmp_path: Path) -> None:
    """File, variable or command line; the nearest name of an unknown key."""
    file = tmp_path / "extender.yaml"
    file.write_text("apiVersion: config.gputopo.dev/v1alpha1\nkind: ExtenderConfiguration\nlisten: {prot: 1}\n")
    environment = {"GPUTOPO_HEALTH_PORT": "many", "GPUTOPO_SCHEDULING_HOLDD": "5s"}
    with pytest.raises(ConfigurationError) as caught:
        load(WholeConfiguration, file, environment, {"scheduling.demand": "{x: 1}"})
    assert sorted(re.sub(r"(?<=: )(Input|unable).*", "…", line) for line in str(caught.value).splitlines()) == [
        f"{file}: listen.prot: unknown key; did you mean listen.port?",
        "GPUTOPO_HEALTH_PORT: health.port: …",
        "GPUTOPO_SCHEDULING_HOLDD: unknown variable; did you mean GPUTOPO_SCHEDULING_HOLD?",
        "command line: scheduling.demand.x.[key]: …",
    ]


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        ("scheduling.schedulerNames", "[a", "scheduling.schedulerNames: while parsing"),
        ("scheduling.demand", "{1: ", "scheduling.demand: while parsing"),
        ("listen", "[]", "listen: Input should be a valid dictionary"),
        ("log.level.x", "debug", "log.level.x: level is not a section"),
        ("scheduling.hold", "9" * 400 + "s", "scheduling.hold: Input should be a finite number"),
    ],
)
def test_text_that_cannot_be_read_is_refused_with_path_and_reason(path: str, text: str, problem: str) -> None:
    """A second level never replaces a value."""
    with pytest.raises(ConfigurationError, match=f"^command line: {re.escape(problem)}"):
        load(WholeConfiguration, None, {"GPUTOPO_LOG_LEVEL": "info"}, {path: text})


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_a_printed_duration_is_read_as_the_same(seconds: float) -> None:
    """However short or long it is."""
    assert Waiting(wait=Waiting(wait=seconds).model_dump()["wait"]).wait == seconds


def as_text(value: Any, separated: str) -> str:
    """Return a value as somebody would write it in a variable."""
    if isinstance(value, list):
        return ",".join(value) if separated == "a,b" else f"[{', '.join(value)}]"
    return value if isinstance(value, str) else json.dumps(value)


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value of a setting."""
    value: Any = document
    for key in path.split("."):
        value = value[key]
    return value
