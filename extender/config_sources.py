"""The extender's configuration, put together and validated whole before anything starts.

A setting comes from the command line, else the environment, else the file, else its default. Unknown keys are refused
with their path. `listen.port` is `GPUTOPO_LISTEN_PORT` in the environment and `--set listen.port=…` as a flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from extender.config import API_VERSION, KIND, ExtenderConfiguration
from extender.kit.yaml_text import read_yaml

ENVIRONMENT_PREFIX: Final = "GPUTOPO_"


class ConfigError(Exception):
    """A configuration that cannot be used; one line per problem, each with where it is."""


def load(file: Path | None, environment: Mapping[str, str], settings: Mapping[str, str]) -> ExtenderConfiguration:
    """Put the configuration together.

    Args:
        file: The YAML document; `None` for defaults.
        environment: Usually `os.environ`; only names that stand for a setting are looked at.
        settings: Dotted path to value, as given by `--set`.

    Raises:
        ConfigError: The file is missing or not YAML, or a key or value is wrong.

    """
    document = _read(file) if file else {}
    for path in _paths(ExtenderConfiguration):
        if (name := _environment_name(path)) in environment:
            _put(document, path, environment[name], name)
    for dotted, value in settings.items():
        _put(document, tuple(dotted.split(".")), value, f"--set {dotted}")
    try:
        return ExtenderConfiguration.model_validate(document)
    except ValidationError as error:
        raise ConfigError("\n".join(_problems(error, file))) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        document = read_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: not a mapping")
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(key) != expected:
            raise ConfigError(f"{file}: {key}: must be {expected}, got {document.get(key)}")
    return document


def _paths(section: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        path = (*above, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _paths(field.annotation, path)
        else:
            yield path


def _environment_name(path: tuple[str, ...]) -> str:
    return ENVIRONMENT_PREFIX + "_".join(re.sub(r"(?=[A-Z])", "_", key).upper() for key in path)


def _put(document: dict[str, Any], path: tuple[str, ...], value: str, source: str) -> None:
    section = document
    for key in path[:-1]:
        section = section.setdefault(key, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{source}: {key} is not a section")
    try:
        section[path[-1]] = read_yaml(value)
    except ValueError as error:
        raise ConfigError(f"{source}: not a YAML value: {value}") from error


def _problems(error: ValidationError, file: Path | None) -> Iterator[str]:
    for problem in error.errors():
        path = ".".join(map(str, problem["loc"]))
        reason = "unknown key" if problem["type"] == "extra_forbidden" else problem["msg"].removeprefix("Value error, ")
        yield ": ".join(filter(None, [str(file or "configuration"), path, reason]))
