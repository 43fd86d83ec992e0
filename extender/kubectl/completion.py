"""`kubectl_complete-gputopo`: what kubectl's shell completion asks a plugin, and reads as cobra's `__complete` writes it.

A line for each word, with what it means after a tab, then `:4`, which keeps the shell from offering files. Whoever presses a key
is not to hear of trouble: where the cluster does not answer, only verbs and options are offered.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import typer
from typer.main import get_command

from extender.cluster.state import ClusterState
from extender.inspect import inspection
from extender.kubectl import cli
from extender.kubectl.form import Output
from extender.kubectl.reading import ask, kubeconfig, read_state
from extender.kubernetes.kubeconfig import Kubeconfig
from topology.annotations import keys

NO_FILES: Final = 4
FILES: Final = 0
NAMES_SECONDS: Final = 3.0
"""For what a cluster may take to tell its names; a key was pressed."""
_NAMED = {
    **dict.fromkeys(("node", "top", "cordon-gpu", "uncordon-gpu", "clear-gpu"), "nodes"),
    **dict.fromkeys(("pod", "why"), "pods"),
}
"""Verbs that take a name, and of what."""


def complete(words: Sequence[str]) -> tuple[list[str], int]:
    """Return what the last word, which may be empty, could become, and cobra's directive.

    >>> words, directive = complete(["nodes", "-o", "j"])
    >>> ",".join(words), directive
    ('json', 4)
    """
    *before, last = words or [""]
    commands: dict[str, Any] = get_command(cli.app).commands  # type: ignore[attr-defined]
    if not before:
        return _beginning(last, ((name, command.help) for name, command in commands.items())), NO_FILES
    command = commands.get(before[0])
    if command is None:
        return [], NO_FILES
    option = next((option for option in _options(command) if before[-1] in option.opts and not option.is_flag), None)
    if option is not None:
        values = ((value, "") for value in (Output if option.name == "output" else ()))
        return _beginning(last, values), FILES if option.name in ("file", "manifest", "snapshot") else NO_FILES
    if last.startswith("-"):
        spelled = ((spelling, option.help) for option in _options(command) for spelling in option.opts)
        return _beginning(last, spelled), NO_FILES
    names = _names(before) if before[0] in _NAMED and not _has_name(command, before[1:]) else ()
    return _beginning(last, ((name, "") for name in names if name.isprintable())), NO_FILES


def main() -> None:
    """Answer kubectl."""
    lines, directive = complete(sys.argv[1:])
    print(*lines, f":{directive}", sep="\n")


def _beginning(start: str, words: Iterable[tuple[str, str]]) -> list[str]:
    matching = sorted((word, meaning) for word, meaning in words if word.startswith(start))
    return [f"{word}\t{meaning}" if meaning else word for word, meaning in matching]


def _names(words: Sequence[str]) -> Iterable[str]:
    """Return the names of nodes or pods that have to do with GPUs, none where the cluster does not tell them soon."""
    said = dict(pairwise(words))
    file = said.get("--kubeconfig")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            config = kubeconfig(Path(file) if file else None, said.get("--context"))
            state = ask(_read_soon(config, said.get("--resource", keys.GPU_RESOURCE)))
    except (typer.Exit, TimeoutError):
        return ()
    if _NAMED[words[0]] == "nodes":
        return inspection.node_names(state)
    namespace = said.get("-n") or said.get("--namespace") or config.namespace
    return (pod.key[1] for pod in state.pods if pod.key[0] == namespace and not pod.stopped)


async def _read_soon(config: Kubeconfig, resource: str) -> ClusterState:
    async with asyncio.timeout(NAMES_SECONDS):
        return await read_state(config, ClusterState(resource=resource))


def _options(command: Any) -> Iterator[Any]:
    return (parameter for parameter in command.params if parameter.param_type_name == "option")


def _has_name(command: Any, words: Sequence[str]) -> bool:
    """Whether one of the words is neither an option nor the value of one."""
    takes_value = {spelling for option in _options(command) if not option.is_flag for spelling in option.opts}
    return any(
        not word.startswith("-") and (at == 0 or words[at - 1] not in takes_value) for at, word in enumerate(words)
    )
