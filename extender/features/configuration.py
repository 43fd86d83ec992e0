"""The whole configuration of the extender: the core's sections, and one of each feature that has settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import create_model

from extender.config.document import ExtenderConfiguration
from extender.core.feature import Feature
from extender.features.registry import FEATURES
from extender.kit import configuration


def document_of(features: Iterable[type[Feature]]) -> type[ExtenderConfiguration]:
    """Return the kind of document that also has the sections of these features.

    Raises:
        ValueError: A section of a feature has the name of one of the core's.

    """
    sections: dict[str, Any] = {
        feature.name.replace("-", "_"): (feature.section, feature.section()) for feature in features if feature.section
    }
    if taken := sorted(sections.keys() & ExtenderConfiguration.model_fields.keys()):
        raise ValueError(f"the core already has sections of these names: {', '.join(taken)}")
    return create_model(
        "ExtenderConfiguration", __base__=ExtenderConfiguration, __doc__="The whole document.", **sections
    )


WholeConfiguration: Final = document_of(FEATURES)
"""People know it as `ExtenderConfiguration`, also in the OpenAPI schema."""


def load(file: Path | None, environment: Mapping[str, str], settings: Mapping[str, str]) -> ExtenderConfiguration:
    """Put the configuration together; `settings` are those of `--set`, by dotted path."""
    return configuration.load(WholeConfiguration, file, environment, settings)
