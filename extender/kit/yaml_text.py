"""YAML that people and other programs have written: whatever is wrong with it is one kind of error."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """Return what a document says; raises `ValueError` with the reason on one line."""
    return _read(text, yaml.SafeLoader)


def read_yaml_texts(text: str) -> Any:
    """Return lists and mappings of texts: `007` stays `007`; raises `ValueError` with the reason on one line."""
    return _read(text, yaml.BaseLoader)


def _read(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> Any:
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - both make nothing but lists, mappings and scalars
    except Exception as error:  # PyYAML lets out whatever it meets in a number, a date or a deep list that is none
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
