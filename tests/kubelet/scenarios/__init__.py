"""What pods do to one node, told once for the kubelet double and the real kubelet: files that both of them play."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubelet.pods import Container, Kind

FILES = sorted(Path(__file__).parent.glob("*.json"))


@dataclass(frozen=True, slots=True)
class PodAsked:
    """A pod that appears."""

    name: str
    containers: tuple[Container, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: pods appear together, pods are deleted, or the kubelet starts again."""

    run: Sequence[PodAsked] = ()
    delete: Sequence[str] = ()
    restart: bool = False


@dataclass(slots=True)
class Course:
    """What came of a scenario; which of equal devices it was is nobody's choice, so only their number counts."""

    questions: list[str] = field(default_factory=list)
    """To the device plugin."""
    held: dict[str, int] = field(default_factory=dict)
    """At the end: pod and container, as PodResources lists them → number of devices."""
    refused: dict[str, str] = field(default_factory=dict)
    """Pod → why, in the words that matter."""


def read(file: Path) -> list[Step]:
    """Return the steps of a scenario."""
    return [_step(step) for step in json.loads(file.read_text())["steps"]]


def reason(message: str) -> str:
    """Return the words of a refusal that do not depend on numbers."""
    for words in ("requested number of devices unavailable", "no healthy devices present"):
        if words in message:
            return words
    return message


def _step(step: Mapping[str, Any]) -> Step:
    pods = [PodAsked(pod["name"], tuple(map(_container, pod["containers"]))) for pod in step.get("run", ())]
    return Step(pods, step.get("delete", ()), step.get("restart", False))


def _container(container: Mapping[str, Any]) -> Container:
    return Container(container["name"], container["gpus"], Kind(container.get("kind", "app")))
