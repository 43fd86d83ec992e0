"""XML that nobody vouches for, as a small tree whose elements know their line and column.

No DTD is read, so there are no entities to expand and nothing outside the text to fetch. Size, depth and number of
elements are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from topology.errors import SourceError

MAX_CHARACTERS: Final = 4 * 2**20
MAX_DEPTH: Final = 64
MAX_ELEMENTS: Final = 10_000

_ROOT = re.compile(r"<(system|graphs)[\s>/]")
_BEFORE_ROOT = re.compile(r"<\?xml\s|<!")


@dataclass(slots=True, eq=False)
class Element:
    """One element; text between elements is not kept."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    line: int
    column: int
    children: list[Element] = field(default_factory=list)

    def child(self, tag: str) -> Element | None:
        """Return the first child called `tag`."""
        return next((child for child in self.children if child.tag == tag), None)

    def ancestors(self) -> Iterator[Element]:
        """Give the elements around this one, nearest first."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    def walk(self) -> Iterator[Element]:
        """Give this element and all below it, in the order of the document."""
        yield self
        for child in self.children:
            yield from child.walk()

    def number(self, name: str, low: int, high: int) -> int | None:
        """Return an attribute as an integer, `None` if it is not there; raises `SourceError`."""
        said = self.attributes.get(name)
        if said is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,9}", said) or not low <= int(said) <= high:
            raise self.refused(f"{name} is {said[:32]!r}, not a number from {low} to {high}")
        return int(said)

    def refused(self, reason: str) -> SourceError:
        """Return the error that points here."""
        return SourceError(self.line, self.column, reason)


def read_xml(text: str) -> Element:
    """Return the root element; raises `SourceError`."""
    if len(text) > MAX_CHARACTERS:
        raise SourceError(0, 0, f"longer than {MAX_CHARACTERS} characters")
    start, end = _document(text)
    reader = _Reader(skipped=text.count("\n", 0, start))
    try:
        reader.parser.Parse(text[start:end], True)
    except expat.ExpatError as error:
        line = error.lineno + reader.skipped
        raise SourceError(line, error.offset + 1, reader.explain(error.code)) from error
    except UnicodeEncodeError as error:
        raise SourceError(0, 0, "characters that no encoding has") from error
    assert reader.root is not None  # expat refuses a document without an element
    return reader.root


def _document(text: str) -> tuple[int, int]:
    """Return where the document begins and ends: a prompt or a code fence may stand before and behind it."""
    root = _ROOT.search(text)
    if root is None:
        return len(text) - len(text.lstrip("\ufeff")), len(text)
    before = _BEFORE_ROOT.search(text, 0, root.start())
    end = text.rfind(f"</{root[1]}>")
    return (before or root).start(), len(text) if end < root.start() else end + len(root[1]) + 3


class _Reader:
    def __init__(self, skipped: int) -> None:
        self.skipped = skipped
        """Lines before the document."""
        self.root: Element | None = None
        self._open: list[Element] = []
        self._count = 0
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def explain(self, code: int) -> str:
        """Return what an error of expat means here; its own words for a text that was cut are no help."""
        if code == expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS] and self._open:
            return (
                f"the text ends inside the {self._open[-1].tag[:32]} element of line {self._open[-1].line}: it was cut"
            )
        return expat.errors.messages[code]

    def _refused(self, reason: str) -> SourceError:
        return SourceError(self.parser.CurrentLineNumber + self.skipped, self.parser.CurrentColumnNumber + 1, reason)

    def _doctype(self, *_: object) -> None:
        raise self._refused("a document type declaration: entities are not read")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= MAX_DEPTH or self._count > MAX_ELEMENTS:
            raise self._refused("more elements than any machine needs")
        line, column = self.parser.CurrentLineNumber + self.skipped, self.parser.CurrentColumnNumber + 1
        element = Element(tag, attributes, self._open[-1] if self._open else None, line, column)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()
