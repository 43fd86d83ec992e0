"""Commands that pages tell people to type are run, and print what the page shows; those that are not run are listed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import benchmarks.cli
from tests.manifests.command_line import COMMAND_LINE, EXPERIMENTS, PROGRAMS, text
from tests.manifests.helm import MANIFESTS

ROOT = MANIFESTS.parent
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md", "benchmarks/RESULTS.md")]
PAGES = [*FRONT, *sorted((ROOT / "docs").rglob("*.md"))]

NOT_RUN = {
    "export PATH": "is for the shell that goes on",
    "curl ": "needs a cluster",
    "gputopo-agent --once": "needs a GPU",
    "gputopo-bench bandwidth": "the tests of the model compare it",
    "gputopo-bench curves": "minutes",
    "gputopo-bench drift": "needs a cluster, and what Prometheus answered",
    "gputopo-bench compare": "needs what a cluster printed",
    "gputopo-bench health-year": "minutes",
    "gputopo-bench latency": "minutes",
    "gputopo-bench measure": "needs a cluster",
    "gputopo-bench monitoring": "minutes, and needs a GPU or the fake NVML",
    "gputopo-bench optimum": "minutes",
    "gputopo-bench placement": "minutes, or a trace",
    "gputopo-bench plan topology.json": "needs a machine that somebody has measured",
    "gputopo-bench report": "half an hour",
    "gputopo-bench served": "a trace",
    "gputopo-bench scheduler": "needs a control plane",
    "gputopo-bench snapshot": "needs what a cluster printed",
    "gputopo-bench state": "minutes",
    "git fetch": "needs a release that is tagged",
    "git push": "publishes",
    "helm ": "needs a cluster",
    "kubectl ": "needs a cluster",
    "make ": "takes minutes; the target has to exist",
    "nvidia-smi ": "needs a GPU",
    "podman ": "needs a registry",
    "python -m tests.nvml ": "minutes, and needs a C compiler",
}
"""How commands begin that no test types, and why; they are only read."""


@dataclass(frozen=True, slots=True)
class Command:
    """One line after a prompt, and what the page shows below it."""

    page: str
    line: str
    shown: str

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"

    @property
    def is_run(self) -> bool:
        return not self.line.startswith(tuple(NOT_RUN))

    @property
    def pipeline(self) -> list[list[str]]:
        """The words of each program, without `VARIABLE=…` before it and `> FILE` after it."""
        parts = [shlex.split(part.partition(" > ")[0]) for part in self.line.split(" | ")]
        return [[word for word in words if not re.fullmatch(r"[A-Z]+=\S*", word)] for words in parts]


def commands() -> Iterator[Command]:
    """Yield every command of every page, with lines that go on joined and comments cut off."""
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            assert block.startswith("$ "), f"{page.name}: a console block begins with a prompt"
            for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, shown = entry.replace("\\\n", "").partition("\n")
                yield Command(str(page.relative_to(ROOT)), re.sub(r"\s{2,}# .*", "", line).strip(), shown)


COMMANDS = list(commands())


@pytest.mark.slow
@pytest.mark.parametrize("command", [found for found in COMMANDS if found.is_run], ids=str)
def test_a_command_prints_what_its_page_shows(command: Command) -> None:
    """Line by line; `…` stands for any lines."""
    printed = ""
    for words in command.pipeline:
        assert words[0] == "gputopo-bench", f"neither run nor listed as not run: {command}"
        done = CliRunner().invoke(benchmarks.cli.app, words[1:], input=printed)
        assert done.exit_code in (0, 1), done.output
        printed = done.stdout
    expected = "".join(".*" if line == "…" else re.escape(line) + "\n" for line in command.shown.splitlines())
    assert re.fullmatch(expected, printed, re.DOTALL), f"{command}\n{printed}"


def test_what_is_not_run_is_on_some_page() -> None:
    """An entry that excuses nothing is taken out."""
    assert [start for start in NOT_RUN if not any(found.line.startswith(start) for found in COMMANDS)] == []


@pytest.mark.parametrize("command", [found for found in COMMANDS if not found.is_run], ids=str)
def test_a_command_that_is_not_run_names_what_exists(command: Command) -> None:
    """Our options are parsed, make has the target, and files of the repository are there."""
    for words in command.pipeline:
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
        parse(words)
        files = [word for word in words if word.startswith(("benchmarks/", "manifests/", "tests/"))]
        assert [file for file in files if not (ROOT / file).exists()] == []


def parse(words: list[str]) -> None:
    """Fail where the command line of ours would refuse these words."""
    name = " ".join(words[:2]) if words[0] == "kubectl" else words[0]
    if name not in PROGRAMS:
        return
    command: Any = get_command(PROGRAMS[name])
    rest = words[len(name.split()) :]
    if hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(name, rest)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_command_line_page_lists_every_command_and_option(name: str) -> None:
    """Of a command with others below it, each has a section of its own, which may say that it has all common options but some."""
    section = COMMAND_LINE.page.read_text().partition(f"\n## `{name}`\n")[2].partition("\n## ")[0]
    common = section.partition(f"### Common options of `{name}`\n")[2].partition("\n###")[0]
    command: Any = get_command(PROGRAMS[name])
    for below, found in getattr(command, "commands", {"": command}).items():
        sections = re.findall(rf"^### `{name} {below}`\n(.*?)(?=^##|\Z)", section, re.MULTILINE | re.DOTALL)
        said = sections if below else [section]
        assert len(said) == 1, below
        own, shares, missing = re.split(r"(Common options: all)(?= but |\.)|$", said[0], maxsplit=1)
        listed = own + (common if shares else "")
        for spellings in options(found):
            assert any(f"`{one}" in listed for one in spellings), (below, spellings)
            assert not any(f"`{one}`" in missing for one in spellings), (below, spellings)


def test_the_command_line_page_is_what_help_says() -> None:
    """`make manifests` writes it; a command that it does not explain exists."""
    assert not COMMAND_LINE.outdated()
    bench: Any = get_command(PROGRAMS["gputopo-bench"])
    assert bench.commands.keys() >= EXPERIMENTS


def test_the_command_line_page_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of `--help` break where the terminal ends."""
    texts = set()
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        texts.add(text("kubectl gputopo"))
    assert len(texts) == 1


def options(command: Any) -> Iterator[list[str]]:
    """Yield the spellings of each option but `--help` and those for shells."""
    for parameter in command.params:
        if parameter.param_type_name == "option" and not {"--help", "--install-completion"} & set(parameter.opts):
            yield parameter.opts


@pytest.mark.slow
def test_pages_show_what_the_demo_prints() -> None:
    """The first steps show four rows of its table and its last lines, with today's figures."""
    run = [sys.executable, "-m", "benchmarks", "demo"]
    printed = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    rows = [line for line in text_about("stock scheduling", "docs/tutorial/first-steps.md").splitlines() if line]
    assert len([row for row in rows if re.match(r"  \w", row)]) == 1 + 4, "the heading and four pods"
    start = lines.index(rows[0])
    assert lines[start : start + len(rows)] == rows
    end = text_about("geometric mean", "docs/tutorial/first-steps.md").splitlines()
    assert lines[-len(end) :] == end


def text_about(words: str, page: str) -> str:
    """Return the block of text on a page that has those words."""
    texts: list[str] = re.findall(r"^```text\n(.*?)^```", Path(ROOT, page).read_text(), re.MULTILINE | re.DOTALL)
    return next(text for text in texts if words in text)
