"""YAML that people and other programs have written, where every fault is one kind of error; and YAML that we write."""

from __future__ import annotations

from typing import Any

import yaml

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""That of libyaml is five times as fast; PyYAML is built without it where no C compiler is."""


def read_yaml(text: str) -> Any:
    """Return what a document says; raises `ValueError` with the reason on one line."""
    return _read(text, yaml.SafeLoader)


def read_yaml_texts(text: str) -> Any:
    """Return lists and mappings of texts: `007` stays `007`; raises `ValueError` with the reason on one line."""
    return _read(text, yaml.BaseLoader)


def write_yaml(document: Any) -> str:
    """Return the text of a document, in ASCII, with its keys in their order."""
    text: str = yaml.dump(document, Dumper=_DUMPER, sort_keys=False, allow_unicode=False)
    return text


def _read(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> Any:
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - both make nothing but lists, mappings and scalars
    except Exception as error:  # PyYAML lets out whatever it meets in a number, a date or a deep list that is none
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
