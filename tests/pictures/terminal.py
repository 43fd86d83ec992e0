"""What a terminal shows, as plain SVG: the same in every browser, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from html import escape
from typing import Final

_PAPER, _INK, _PROMPT = "#1c1e21", "#e6e8eb", "#5cc8a1"
_FONT: Final = 'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="12"'
_COLUMN, _LINE, _MARGIN = 7.2, 18, 16


def draw(command: str, output: str) -> str:
    """Return the picture of a command and its output; each word stands in its own column, whatever the font's width."""
    lines = [f"$ {command}", *output.splitlines()]
    width = round(2 * _MARGIN + _COLUMN * max(len(line) for line in lines))
    height = 2 * _MARGIN + _LINE * len(lines)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_FONT} role="img">',
        f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}"/>',
    ]
    for row, line in enumerate(lines):
        ink = _INK if row else _PROMPT
        y = _MARGIN + _LINE * row + 13
        parts += [
            f'<text x="{round(_MARGIN + _COLUMN * words.start(), 1)}" y="{y}" fill="{ink}" '
            f'textLength="{round(_COLUMN * len(words[0]), 1)}">{escape(words[0])}</text>'
            for words in re.finditer(r"\S+(?: \S+)*", line)
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"
