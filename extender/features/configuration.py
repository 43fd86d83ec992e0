"""The whole configuration of the extender: the core's sections, and one of each feature that has settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import create_model

from extender.config.document import ExtenderConfiguration
from extender.features.registry import FEATURES
from extender.kit import configuration

_SECTIONS: Final[dict[str, Any]] = {
    feature.name.replace("-", "_"): (feature.section, feature.section()) for feature in FEATURES if feature.section
}
WholeConfiguration: Final = create_model(
    "WholeConfiguration", __base__=ExtenderConfiguration, __doc__="The whole document.", **_SECTIONS
)


def load(file: Path | None, environment: Mapping[str, str], settings: Mapping[str, str]) -> ExtenderConfiguration:
    """Put the configuration together; `settings` are those of `--set`, by dotted path."""
    return configuration.load(WholeConfiguration, file, environment, settings)
