"""YAML that people and other programs have written: whatever is wrong with it is one kind of error."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """Return what a document says; raises `ValueError` with the reason on one line."""
    try:
        return yaml.safe_load(text)
    except Exception as error:  # PyYAML lets out whatever it meets in a number, a date or a deep list that is none
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
