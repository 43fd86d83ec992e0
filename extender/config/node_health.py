"""Which words of other health agents count, and which of them close a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from extender.config.health_words import HealthWord, condition, label, taint
from extender.kit.settings import Items, Section

WordTexts = Items[Annotated[str, Field(pattern=r"^[^=:\s]")]]


class NodeWords(Section):
    """Conditions, labels and taints of nodes. `*` matches anything."""

    conditions: WordTexts = ()
    """`TYPE`, or `TYPE=STATUS`. Default status: `True`, unless the condition is known."""
    labels: WordTexts = ()
    """`KEY`, or `KEY=VALUE`."""
    taints: WordTexts = ()
    """`KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`."""

    def read(self, *, closes: bool) -> Iterator[HealthWord]:
        """Yield them as they are looked for."""
        for reader, texts in ((condition, self.conditions), (label, self.labels), (taint, self.taints)):
            yield from (replace(reader(text), closes=closes) for text in texts)


class NodeHealthSettings(Section):
    """Conditions, labels and taints of other health agents."""

    show: NodeWords = NodeWords()
    """Shown, in addition to the known ones."""
    close: NodeWords = NodeWords()
    """Make a node not schedulable."""

    @property
    def words(self) -> tuple[HealthWord, ...]:
        """All of them, as nodes are read."""
        return (*self.show.read(closes=False), *self.close.read(closes=True))
