"""Reads the declarations of a model's header, to compare them with those in Python."""

from __future__ import annotations

import re
from pathlib import Path


class Header:
    """A header, without its comments."""

    def __init__(self, path: Path) -> None:
        self._text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)

    def body(self, kind: str, name: str) -> str:
        """Return what is between the braces of a declaration."""
        declaration = re.search(rf"^{kind} {name} {{(.*?)}};", self._text, re.DOTALL | re.MULTILINE)
        assert declaration, f"{kind} {name}"
        return declaration[1]

    def members(self, enum: str) -> list[str]:
        """Return the names that an enumeration counts."""
        return re.findall(r"\w+", self.body("enum", enum))

    def fields(self, struct: str) -> list[str]:
        """Return the fields of a structure, with their bits where they have some."""
        declared = []
        for line in self.body("struct", struct).split(";"):
            words = re.sub(r"\[.*", "", line).split()
            for field in " ".join(words[2 if words[:1] == ["struct"] else 1 :]).split(", "):
                declared += [field.replace(" : ", ":")] if field else []
        return declared
