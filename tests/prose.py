"""Check how pages and docstrings read: `python -m tests.prose FILE…`, or `--all` for all pages and the product's docstrings."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from statistics import median
from typing import Final

from tests.house import PRODUCT, ROOT, modules

MAX_WORDS: Final = 25
PAGES: Final = ("*.md", "docs/**/*.md", "manifests/chart/README.md", "tests/README.md", "benchmarks/RESULTS.md")
BANNED: Final = (
    r"whoever",
    r"somebody",
    r"anew",
    r"told",
    r"beside",
    r"words of ours",
    r"kinds? of machines?",
    r"ask(s|ed|ing)? for links",
    r"upkeep",
    r"comes? back",
    r"closed nodes?",
    r"nodes? (is|are|stays?|stay) closed",
    r"quarantined nodes?",
    r"nodes? (is|are) quarantined",
    r"pods to come",
)
"""Regular expressions, of whole words, for what has a plainer name. They do not apply to code."""

_BANNED: Final = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
_FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})[^`\n]*\n.*?(?:^ *\1[`~]* *$|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_ADDRESS: Final = re.compile(r"<?https?://[^\s>)]+>?")
_TAG: Final = re.compile(r"</?[a-z][^>]*>")
_ITEM: Final = re.compile(r" *(?:[-*+]|\d+[.)]|!!!|\?\?\?|[│ ]*[├└]──) +")
_RULE: Final = re.compile(r"[ |:=-]*")
_ENTRY: Final = re.compile(r" *(?:Args|Raises|Returns|Yields):$| +\*{0,2}\w+: ")
_NO_END: Final = re.compile(r"\b(?:e\.g|i\.e|vs|etc|cf|approx|resp)\.$")
_END: Final = re.compile(r"(?<=[.!?])[\"')”*_]*\s+")
_WORD: Final = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Text:
    """Sentences that stand together: those of a page, or of a docstring."""

    name: str
    sentences: tuple[str, ...]
    words: int
    """As `wc -w` counts them, code and tables included."""
    is_page: bool

    @property
    def lengths(self) -> list[int]:
        """Return how many words each sentence has."""
        return [length(sentence) for sentence in self.sentences]

    @property
    def faults(self) -> list[str]:
        """Say which sentences are too long, and which words of a page have a plainer name."""
        faults = [
            f"{self.name}: {words} words: {sentence}"
            for sentence, words in zip(self.sentences, self.lengths, strict=True)
            if words > MAX_WORDS
        ]
        if self.is_page:
            faults += [
                f"{self.name}: {match[0]!r}: {sentence}"
                for sentence in self.sentences
                for match in _BANNED.finditer(sentence)
            ]
        return faults

    @property
    def summary(self) -> str:
        """Return words, median and longest sentence."""
        lengths = self.lengths or [0]
        return f"{self.words:6} {median(lengths):6g} {max(lengths):7}  {self.name}"


def length(sentence: str) -> int:
    """Count the words of a sentence; inline code is one word, and a dash is none."""
    return sum(bool(_WORD.search(word)) for word in sentence.split())


def page(name: str, text: str) -> Text:
    """Read a page of Markdown, without its code blocks, headings and links' targets; each cell of a table stands alone."""
    prose = _FENCE.sub("\n", _COMMENT.sub("", text))
    prose = _plain(re.sub(r"^#+ .*$|^\[[^\]]+\]: .*$", "", prose, flags=re.MULTILINE))
    return Text(name, tuple(_sentences(prose)), len(text.split()), is_page=True)


def docstrings(name: str, source: str) -> Iterator[Text]:
    """Yield the docstrings of a module, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            doc = cleandoc(node.value.value)
            prose = re.sub(r"^ *>>> .*?(?=^ *$|\Z)", "", doc, flags=re.MULTILINE | re.DOTALL)
            sentences = tuple(_sentences(_plain(prose)))
            yield Text(f"{name}:{node.lineno}", sentences, len(doc.split()), is_page=False)


def _plain(text: str) -> str:
    """Leave a word for each piece of inline code and each address, and of a link its text."""
    text = _CODE.sub("CODE", text)
    for pattern, replacement in ((_LINK, r"\1"), (_ADDRESS, "ADDRESS"), (_TAG, "")):
        text = pattern.sub(replacement, text)
    return text.replace("**", "")


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of each paragraph, item and cell."""
    for block in _blocks(text):
        sentence = ""
        for part in _END.split(block):
            sentence = f"{sentence} {part}".strip()
            if sentence and not _NO_END.search(sentence):
                yield sentence
                sentence = ""
        if sentence:
            yield sentence


def _blocks(text: str) -> Iterator[str]:
    """Yield paragraphs, items of lists, entries of `Args:` and cells of tables, each in one line."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        item = _ITEM.match(line)
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)] if line.lstrip().startswith("|") else []
        if lines and (cells or item or _ENTRY.match(line) or _RULE.fullmatch(line)):
            yield " ".join(lines)
            lines = []
        if cells:
            yield from (cell for cell in cells if not _RULE.fullmatch(cell))
        elif not _RULE.fullmatch(line):
            lines.append(line[item.end() :] if item else line.strip(" >"))


def texts(root: Path, files: list[str]) -> Iterator[Text]:
    """Yield what these files say; without files, all pages and the product's docstrings."""
    if not files:
        pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
        files = [path.relative_to(root).as_posix() for path in pages]
        files += [module.path for module in modules(root, *PRODUCT)]
    for name in files:
        source = (root / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            yield from docstrings(name, source)
        else:
            yield page(name, source)


def main(arguments: list[str]) -> int:
    """Print words, median and longest sentence of each page, then the faults; 1 where there are some."""
    parser = argparse.ArgumentParser("python -m tests.prose", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="Markdown pages and Python modules")
    parser.add_argument("--all", action="store_true", help="all pages, and the docstrings of the product")
    options = parser.parse_args(arguments)
    if bool(options.files) == options.all:
        parser.error("name files, or give --all")
    checked = list(texts(ROOT, [Path(name).resolve().relative_to(ROOT).as_posix() for name in options.files]))
    pages = [text for text in checked if text.is_page]
    if pages:
        print(f"{'words':>6} {'median':>6} {'longest':>7}  page")
    for text in pages:
        print(text.summary)
    faults = [fault for text in checked for fault in text.faults]
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages, {len(checked) - len(pages)} docstrings, {len(faults)} faults")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
