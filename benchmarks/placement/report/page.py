"""The report as Markdown, and as one HTML file that needs nothing beside itself."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with the name of its file."""

    name: str
    svg: str


Part = str | Figure
"""Markdown text, or a figure."""


def to_markdown(parts: list[Part]) -> str:
    """Return the page; figures are files of their own beside it."""
    return (
        "\n\n".join(f"![{part.name}]({part.name}.svg)" if isinstance(part, Figure) else part for part in parts) + "\n"
    )


def to_html(title: str, parts: list[Part]) -> str:
    """Return the page with its figures inside; of Markdown it knows headings, tables, lists, bold and code."""
    body = "\n".join(_figure(part) if isinstance(part, Figure) else _blocks(part) for part in parts)
    return _PAGE.format(title=html.escape(title), style=_STYLE, body=body)


def _figure(figure: Figure) -> str:
    svg = figure.svg[figure.svg.index("<svg") :]
    # Several drawings on one page must not share the names of their parts.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{figure.name}-", svg)
    return f"<figure>{svg}</figure>"


def _blocks(markdown: str) -> str:
    return "\n".join(_block(block) for block in markdown.split("\n\n"))


def _block(block: str) -> str:
    lines = block.split("\n")
    if heading := re.fullmatch(r"(#+) (.*)", lines[0]):
        level = len(heading[1])
        return f"<h{level}>{_inline(heading[2])}</h{level}>"
    if lines[0].startswith("|"):
        head, _, *rest = (line.strip("| ").split(" | ") for line in lines)
        rows = "\n".join("<tr>" + "".join(f"<td>{_inline(cell)}</td>" for cell in row) + "</tr>" for row in rest)
        top = "".join(f"<th>{_inline(cell)}</th>" for cell in head)
        return f"<table><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>"
    if lines[0].startswith("- "):
        return "<ul>" + "".join(f"<li>{_inline(line[2:])}</li>" for line in lines) + "</ul>"
    return f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    escaped = html.escape(text)
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", escaped))


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:78em;margin:2em auto;padding:0 1em;color:#1c1e21}"
    "table{border-collapse:collapse;margin:1em 0;font-size:13px;display:block;overflow-x:auto}"
    "th,td{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}figure{margin:1em 0}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#e6e6e6}figure{background:#fff}th,td{border-color:#444}}"
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body>
{body}
</body></html>
"""
