"""The page of the command line: its frame is written by hand, and the commands and options are those of `--help`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import typer
from typer.main import get_command

import agent.__main__
import benchmarks.cli
import extender.kubectl.cli
import extender.web.command
from tests.manifests.helm import MANIFESTS
from tests.manifests.made_tables import MadeTables

PROGRAMS: Final[Mapping[str, typer.Typer]] = {
    "gputopo-agent": agent.__main__.app,
    "gputopo-bench": benchmarks.cli.app,
    "gputopo-extender": extender.web.command.app,
    "kubectl gputopo": extender.kubectl.cli.app,
}
COMMON: Final = 3
"""An option that so many commands have, and all with the same words, is explained once."""
EXPERIMENTS: Final = frozenset(
    [
        "health-year",
        "optimum",
        "latency",
        "scheduler",
        "state",
        "curves",
        "monitoring",
        "bandwidth",
        "placement",
        "served",
        "report",
    ]
)
"""Commands for contributors: the page names their options, and only `--help` explains them."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option or argument as `--help` lists it."""

    names: str
    """With the words to choose from."""
    words: str
    is_argument: bool = False

    @property
    def spelling(self) -> str:
        """Return the first of its names.

        >>> Option("-o, --output <json|text>", "How to print.").spelling
        '-o'
        """
        return re.split(r"[, ]", self.names)[0]

    def __str__(self) -> str:
        return f"- `{self.names}`: {self.words}" if self.words else f"- `{self.names}`"


def text(program: str) -> str:
    """Return what `--help` says of a program and of each of its commands, whatever the width of the terminal."""
    command: Any = get_command(PROGRAMS[program])
    commands: dict[str, Any] = getattr(command, "commands", {})
    common = _common([_options(below) for below in commands.values()])
    blocks = [_paragraphs(command.help), _list(_options(command))]
    if common:
        blocks += [f"### Common options of `{program}`", _list(common)]
    for name, below in commands.items():
        options = _options(below)
        own = [] if name in EXPERIMENTS else [option for option in options if option not in common]
        others = [option for option in options if option not in own]
        elsewhere = [option for option in common if option.spelling not in {its.spelling for its in own}]
        said = f"Options: {_spelled(others)}." if name in EXPERIMENTS else _also(others, elsewhere)
        blocks += [f"### `{program} {name}`", _paragraphs(below.help), _list(own), said if others else ""]
    return "\n{}\n\n".format("\n\n".join(filter(None, blocks)))


def _also(options: Sequence[Option], common: Sequence[Option]) -> str:
    """Name the common options that a command has, or those that it has not, whichever is shorter."""
    missing = [option for option in common if option not in options]
    if len(missing) + 2 < len(options):
        return f"Common options: all but {_spelled(missing)}." if missing else "Common options: all."
    return f"Also: {_spelled(options)}."


def _spelled(options: Iterable[Option]) -> str:
    return ", ".join(f"`{option.spelling}`" for option in options)


def _options(command: Any) -> list[Option]:
    """Return the arguments and options of a command, but `--help` and those for the completion of shells."""
    context = command.context_class(command)
    shown = [parameter for parameter in command.params if not parameter.opts[0].endswith("-completion")]
    records = [(parameter.get_help_record(context), parameter.param_type_name == "argument") for parameter in shown]
    return [
        Option(_without_type(record[0]), _words(record[1]), is_argument) for record, is_argument in records if record
    ]


def _common(commands: list[list[Option]]) -> list[Option]:
    """Return what many commands have; of options with one spelling that which most commands have."""
    counts = Counter(option for options in commands for option in options if not option.is_argument)
    most = {option.spelling: option for option, _ in reversed(counts.most_common())}
    return [option for option, count in counts.items() if count >= COMMON and most[option.spelling] == option]


def _without_type(names: str) -> str:
    """Leave out which type a value has, but not the words to choose from.

    >>> _without_type("--gpus <int range>"), _without_type("-o, --output <json|text>")
    ('--gpus', '-o, --output <json|text>')
    """
    return re.sub(r" <[^|>]*>$", "", names)


def _words(words: str) -> str:
    """Return the help with its default and its variable; what a value must be at least is left to `--help`.

    >>> _words("How many nodes.  [default: 16; x>=0]"), _words("The image.  [required]")
    ('How many nodes. (default: 16)', 'The image.')
    """
    help_text, _, extras = words.removesuffix("]").rpartition("[") if words.endswith("]") else (words, "", "")
    said = [extra for extra in extras.split("; ") if extra.startswith(("default: ", "env var: "))]
    return _markdown(" ".join([help_text.strip(), f"({'; '.join(said)})" if said else ""]).strip())


def _list(options: Iterable[Option]) -> str:
    return "\n".join(map(str, options))


def _paragraphs(help_text: str) -> str:
    return "\n\n".join(_markdown(" ".join(part.split())) for part in help_text.split("\n\n"))


def _markdown(words: str) -> str:
    r"""Keep Markdown from reading anything but code into the words of a terminal.

    >>> _markdown("such as *a100*"), _markdown("`a*b`, NODE_NAME")
    ('such as \\*a100\\*', '`a*b`, NODE_NAME')
    """
    parts = re.split(r"(`[^`]*`)", words)
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts)


COMMAND_LINE = MadeTables(
    MANIFESTS.parent / "docs" / "reference" / "command-line.md",
    {program: partial(text, program) for program in PROGRAMS},
)
