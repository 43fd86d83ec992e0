"""Just enough HTML: what is not marked as such is text, and is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

VOID: Final = frozenset({"meta", "img", "input", "br"})


class Html(str):
    """Markup that was made here; any other string is text."""

    __slots__ = ()


def el(name: str, /, *children: str | Iterable[str], **attributes: str) -> Html:
    """Return an element; an attribute that is a Python keyword takes an underscore: `class_="x"`.

    >>> el("p", "a < b", el("b", "!"), class_="note")
    '<p class="note">a &lt; b<b>!</b></p>'
    """
    opening = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{opening}>")
    content = "".join(_text(part) for child in children for part in ((child,) if isinstance(child, str) else child))
    return Html(f"<{name}{opening}>{content}</{name}>")


def _text(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)
