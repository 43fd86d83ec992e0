"""Patterns of `matches`: what is supported of them, and what they cost to compile. The library compiles at each call.

A few characters can be expensive: `a{99999}`, or a range of Unicode without regard to case. So only what is listed here is
supported.
"""

from __future__ import annotations

import re
from typing import Final

MAX_PATTERN_COST: Final = 200
"""Of all patterns in one evaluation: a millisecond."""
UNKNOWN_PATTERN: Final = MAX_PATTERN_COST
"""Of a pattern that is no literal: as much as is allowed."""
_WORD_COST, _CLASS_COST, _ANY_COST = 62, 14, 1
"""Of what stands for many characters of Unicode, such as `\\w`, `\\d` and a dot, compared with a character."""
_FOLDING: Final = 2
"""How much more a pattern costs without regard to case."""
_SUPPORTED: Final = re.compile(
    r"""(?: [^\\\[{(]                               # a character, an operator
      | \( (?: (?!\?) | \?i\) | \?: )              # a group, or all that follows without regard to case
      | \\ (?: [dDsSwWbB] | [^A-Za-z0-9] )
      | \[ \^? \]? (?: [^\\\[\]] | \\ (?: [dDsSwW] | [^A-Za-z0-9] ) )* \]
      | \{ [0-9]{1,3} (?: , [0-9]{0,3} )? \}
    )*""",
    re.VERBOSE | re.DOTALL,
)
_REPEATED: Final = re.compile(r"\{(\d{1,3})(?:,(\d{0,3}))?\}")
_WORD: Final = re.compile(r"\\[wW]")
_CLASS: Final = re.compile(r"\\[dDsSbB]")
_WIDE: Final = re.compile(r"\\[DSW]")
_FOLDS: Final = "(?i)"
_LITERAL: Final = re.compile(r"""([rR]?)(["'])((?!\2\2).*)\2""", re.DOTALL)
_ESCAPED_BACKSLASHES: Final = re.compile(r"(?:[^\\]|\\\\)*", re.DOTALL)


def pattern_cost(pattern: str) -> int:
    """Return what a pattern costs, in characters; raises `ValueError` for one that is not supported or too expensive."""
    if len(pattern) > MAX_PATTERN_COST:
        raise ValueError("the pattern is too expensive to compile")
    folds = _FOLDS in pattern
    if not (pattern.isascii() and _SUPPORTED.fullmatch(pattern)) or (folds and _WIDE.search(pattern)):
        raise ValueError("this kind of pattern is not supported")
    words, classes = len(_WORD.findall(pattern)), len(_CLASS.findall(pattern))
    cost = len(pattern) + _WORD_COST * words + _CLASS_COST * classes + _ANY_COST * pattern.count(".")
    for least, most in _REPEATED.findall(pattern):
        cost *= max(1, int(least), int(most or 0))
    cost *= _FOLDING if folds else 1
    if cost > MAX_PATTERN_COST:
        raise ValueError("the pattern is too expensive to compile")
    return cost


def literal_pattern(token: str) -> str | None:
    """Return the text of a string literal of CEL; `None`: it is none, or one with escapes that are not read here."""
    match = _LITERAL.fullmatch(token)
    if match is None:
        return None
    raw, _, text = match.groups()
    if raw or "\\" not in text:
        return text
    return text.replace("\\\\", "\\") if _ESCAPED_BACKSLASHES.fullmatch(text) else None
