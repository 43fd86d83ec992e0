"""The configuration of a program: one versioned document, put together and checked whole before anything starts.

A setting comes from the command line, else the environment, else the file, else its default. `listen.port` is
`GPUTOPO_LISTEN_PORT` in the environment. Unknown names are refused in all three.

In the file a value is YAML. The command line and the environment give text, which the type of the setting reads. Text
stays as it is but for quotes around it. A list is `a,b` or `[a, b]`, and a mapping is YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from extender.kit.nearest import did_you_mean
from extender.kit.settings import Section, read_mapping
from extender.kit.yaml_text import read_yaml, write_yaml

API_VERSION: Final = "config.gputopo.dev/v1alpha1"
PREFIX: Final = "GPUTOPO_"
OTHER_VARIABLES: Final = frozenset({
    # kubectl gputopo, and the script that starts it
    "GPUTOPO_EXTENDER", "GPUTOPO_PYTHON", "GPUTOPO_SCHEDULER_NAME", "GPUTOPO_SNAPSHOT", "GPUTOPO_TOLERATED_TAINT",
    # the file of an extender that uvicorn starts
    "GPUTOPO_CONFIG",
    # benchmarks and tests
    "GPUTOPO_FAKE_NVML", "GPUTOPO_GPU_REPORTS", "GPUTOPO_KUBE_BIN", "GPUTOPO_KUBE_VERSION", "GPUTOPO_SHARED",
})  # fmt: skip
"""Variables with our prefix that are no settings."""
_SERVICE_LINK = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")

_Path: TypeAlias = tuple[str, ...]


class ConfigurationError(Exception):
    """A configuration that cannot be used; one line per problem, each with its source, path and reason."""


class Document(Section):
    """A whole configuration; each program has a kind of its own."""

    api_version: Literal["config.gputopo.dev/v1alpha1"] = API_VERSION
    kind: str

    def to_yaml(self) -> str:
        """Write the document so that it can be read again."""
        return write_yaml(self.model_dump(mode="json", by_alias=True))


AnyDocument = TypeVar("AnyDocument", bound=Document)


def load(
    document_type: type[AnyDocument],
    file: Path | None,
    environment: Mapping[str, str],
    settings: Mapping[str, str],
    other_names: Mapping[str, str] = MappingProxyType({}),
) -> AnyDocument:
    """Put a configuration together.

    Args:
        document_type: Kind of the document.
        file: The YAML document; `None` for defaults.
        environment: Usually `os.environ`.
        settings: Dotted path to value, as the command line gives it.
        other_names: Further variable to dotted path; a variable with our prefix comes before it.

    Raises:
        ConfigurationError: The file is missing or not YAML, or a name or value is wrong.

    """
    document, sources = _read(document_type, file) if file else {}, dict[_Path, str]()
    variables = variables_of(document_type)
    given = {name: text for name, text in environment.items() if not _is_service_link(name, text)}
    texts = [(name, path, given[name]) for name, path in {**other_names, **variables}.items() if name in given]
    for source, dotted, text in (*texts, *(("command line", path, text) for path, text in settings.items())):
        path = tuple(dotted.split("."))
        sources[path] = source
        _put(document, path, text, source)
    problems = list(_unknown(given, variables))
    try:
        checked = document_type.model_validate(document)
    except ValidationError as error:
        problems += _problems(error, sources, str(file or "configuration"), variables.values())
    else:
        if not problems:
            return checked
    raise ConfigurationError("\n".join(problems))


def variables_of(document_type: type[Document]) -> dict[str, str]:
    """Return the environment's name of each setting, and its dotted path."""
    return {_variable(path): ".".join(path) for path in _paths(document_type)}


def _paths(section: type[BaseModel], above: _Path = ()) -> Iterator[_Path]:
    for name, field in section.model_fields.items():
        path = (*above, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _paths(field.annotation, path)
        else:
            yield path


def _variable(path: _Path) -> str:
    return PREFIX + "_".join(re.sub(r"(?=[A-Z])", "_", key).upper() for key in path)


def _is_service_link(name: str, text: str) -> bool:
    """Whether Kubernetes has set the variable for a Service, which may be called `gputopo-health`."""
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_URL.match(text)))


def _read(document_type: type[Document], file: Path) -> dict[str, Any]:
    try:
        document = read_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file}: not a mapping")
    for key, expected in (("apiVersion", API_VERSION), ("kind", document_type.model_fields["kind"].default)):
        if document.get(key) != expected:
            raise ConfigurationError(f"{file}: {key}: must be {expected}, got {document.get(key)}")
    return document


def _put(document: dict[str, Any], path: _Path, text: str, source: str) -> None:
    section = document
    for key in path[:-1]:
        try:
            below = read_mapping(section.get(key, {}))
        except ValueError as error:
            raise ConfigurationError(f"{source}: {'.'.join(path)}: {error}") from error
        if not isinstance(below, dict):
            raise ConfigurationError(f"{source}: {'.'.join(path)}: {key} is not a section")
        section[key] = below
        section = below
    section[path[-1]] = _unquoted(text)


def _unquoted(text: str) -> str:
    """Return text without the quotes around all of it, which charts of version 0.1 write."""
    quoted = re.fullmatch(r"""(["'])(.*)\1""", text, re.DOTALL)
    return quoted[2] if quoted and quoted[1] not in quoted[2] else text


def _unknown(given: Iterable[str], variables: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(given):
        if name.startswith(PREFIX) and name not in variables and name not in OTHER_VARIABLES:
            yield f"{name}: unknown variable{did_you_mean(name, variables)}"


def _problems(error: ValidationError, sources: Mapping[_Path, str], file: str, names: Iterable[str]) -> Iterator[str]:
    for problem in error.errors():
        location = problem["loc"]
        path = ".".join(map(str, location))
        source = next((sources[above] for above in _upwards(location) if above in sources), file)
        if problem["type"] == "extra_forbidden":
            reason = f"unknown key{did_you_mean(path, names)}"
        else:
            reason = problem["msg"].removeprefix("Value error, ")
        yield ": ".join(filter(None, (source, path, reason)))


def _upwards(location: tuple[str | int, ...]) -> Iterator[Any]:
    return (location[:length] for length in range(len(location), 0, -1))
