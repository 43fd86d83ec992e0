"""Where kubectl would look for a cluster: the files of `$KUBECONFIG`, the context in force, and its namespace.

As with kubectl, a file that is not there is passed over, and of what several files say the first counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from extender.kubernetes.reflector import Unavailable
from extender.yaml_text import read_yaml


class _Context(msgspec.Struct):
    namespace: str | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context | None = None


class _Named(msgspec.Struct):
    name: str


class _File(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    contexts: list[_NamedContext] | None = None
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The files that are there, in order, and what they say of the context in force."""

    files: tuple[Path, ...]
    context: str
    namespace: str

    @classmethod
    def find(cls, file: Path | None, context: str | None, environment: Mapping[str, str]) -> Self:
        """Read `file`, else those that `$KUBECONFIG` lists, else `~/.kube/config`.

        Args:
            file: What `--kubeconfig` names.
            context: What `--context` names; else the files' current one.
            environment: Usually `os.environ`.

        Raises:
            Unavailable: None of the files is there, one cannot be read, or no context is in force.

        """
        wanted = [file] if file else _listed(environment)
        found = {path: content for path in wanted if (content := _read(path))}
        if not found:
            raise Unavailable(f"no kubeconfig: {', '.join(map(str, wanted))} not found, or empty")
        name = context or next((content.current_context for content in found.values() if content.current_context), None)
        if name is None:
            raise Unavailable("the kubeconfig has no current context: name one with --context")
        known = [each.name for content in found.values() for each in content.contexts or ()]
        if name not in known:
            there = ", ".join(known) or "none"
            raise Unavailable(f"no context {name} in {', '.join(map(str, found))}; there are: {there}")
        return cls(tuple(found), name, _namespace(found.values(), name))


def _listed(environment: Mapping[str, str]) -> Sequence[Path]:
    listed = [Path(entry).expanduser() for entry in environment.get("KUBECONFIG", "").split(os.pathsep) if entry]
    return listed or [Path.home() / ".kube" / "config"]


def _read(path: Path) -> _File | None:
    """Return what a file says, `None` when it is not there or says nothing."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8"))
        return None if document is None else msgspec.convert(document, _File)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    except ValueError as error:  # of UTF-8, of YAML, or of what it says
        raise Unavailable(f"{path}: {' '.join(str(error).split())}") from error


def _namespace(files: Iterable[_File], context: str) -> str:
    first = next((named for file in files for named in file.contexts or () if named.name == context), None)
    return (first and first.context and first.context.namespace) or "default"
