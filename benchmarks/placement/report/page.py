"""A page as Markdown, as text for a terminal, and as one HTML file that needs nothing beside itself."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from textwrap import fill


@dataclass(frozen=True, slots=True)
class ReportFigure:
    """A picture with the name of its file."""

    name: str
    svg: str
    on_paper: bool = True
    """Whether it is drawn for white paper; else it takes its colours from the page."""


_COLUMNS = 110

Part = str | ReportFigure
"""Markdown text, or a figure."""


def to_markdown(parts: list[Part]) -> str:
    """Return the page; figures are files of their own beside it."""
    return (
        "\n\n".join(f"![{part.name}]({part.name}.svg)" if isinstance(part, ReportFigure) else part for part in parts)
        + "\n"
    )


def to_text(parts: list[Part]) -> str:
    """Return the page for a terminal: no figures, tables in columns, lines that fit."""
    blocks = [block for part in parts if isinstance(part, str) for block in part.split("\n\n")]
    return "\n\n".join(map(_text_block, blocks)) + "\n"


def to_html(title: str, parts: list[Part]) -> str:
    """Return the page with its figures inside; of Markdown it knows headings, tables, lists, bold and code."""
    body = "\n".join(_figure(part) if isinstance(part, ReportFigure) else _blocks(part) for part in parts)
    return _PAGE.format(title=html.escape(title), style=_STYLE, body=body)


def _text_block(block: str) -> str:
    lines = [
        re.sub(r"\*\*([^*]+)\*\*|`([^`]+)`", lambda found: found[1] or found[2], line) for line in block.split("\n")
    ]
    if heading := re.fullmatch(r"#+ (.*)", lines[0]):
        return f"{heading[1]}\n{'-' * len(heading[1])}"
    if lines[0].startswith("|"):
        return _columns([line.strip("| ").split(" | ") for line in (lines[0], *lines[2:])])
    hang = "  " if lines[0].startswith("- ") else ""
    return "\n".join(fill(line, _COLUMNS, subsequent_indent=hang, break_on_hyphens=False) for line in lines)


def _columns(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _figure(figure: ReportFigure) -> str:
    svg = figure.svg[figure.svg.index("<svg") :]
    # Several drawings on one page must not share the names of their parts.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{figure.name}-", svg)
    paper = ' class="paper"' if figure.on_paper else ""
    return f"<figure{paper}>{svg}</figure>"


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
    "th:first-child,td:first-child{text-align:left}:root{--ours:#0b6e4f;--rule:#ddd}"
    "figure{margin:1em 0}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#16181c;color:#e6e6e6}.paper{background:#fff}th,td{border-color:#444}"
    ":root{--ours:#4fc79a;--rule:#444}}"
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body>
{body}
</body></html>
"""
