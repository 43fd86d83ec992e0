"""Where kubectl would look for a cluster: the files of `$KUBECONFIG`, the context in force, and its namespace.

As with kubectl, a file that is not there is passed over, and of what several files say the first counts. Where none is there,
a pod has the account that the kubelet mounts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from extender.kit.yaml_text import read_yaml
from extender.kubernetes.reflector import Unavailable

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the account of a pod."""


class ContextEntry(msgspec.Struct):
    """What a context consists of, by name."""

    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class NamedContext(msgspec.Struct):
    """One of `contexts`."""

    name: str
    context: ContextEntry | None = None


class NamedCluster(msgspec.Struct):
    """One of `clusters`."""

    name: str
    cluster: dict[str, Any] | None = None


class NamedUser(msgspec.Struct):
    """One of `users`."""

    name: str
    user: dict[str, Any] | None = None


class KubeconfigFile(msgspec.Struct, rename="kebab"):
    """One file."""

    current_context: str | None = None
    contexts: list[NamedContext] | None = None
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The files that are there, in order, and what they say of the context in force."""

    files: tuple[Path, ...]
    """None: the service account of this pod."""
    context: str
    namespace: str

    @classmethod
    def find(cls, file: Path | None, context: str | None, environment: Mapping[str, str]) -> Self:
        """Read `file`, else those that `$KUBECONFIG` lists, else `~/.kube/config`, else the service account of this pod.

        Args:
            file: What `--kubeconfig` names.
            context: What `--context` names; else the files' current one.
            environment: Usually `os.environ`.

        Raises:
            Unavailable: None of the files is there, one cannot be read, or no context is in force.

        """
        paths = [file] if file else _listed(environment)
        with suppress(OSError):
            if not file and not context and not any(path.exists() for path in paths):
                return cls((), "", (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip())
        files = read_files(paths)
        name, entry = context_in_force(files, context)
        return cls(tuple(files), name, entry.namespace or "default")


def read_files(paths: Sequence[Path]) -> dict[Path, KubeconfigFile]:
    """Read the files that are there; raises `Unavailable` where there is none, or where one cannot be read."""
    files = {path: content for path in paths if (content := _read(path))}
    if not files:
        raise Unavailable(f"no kubeconfig: {', '.join(map(str, paths))} not found, or empty")
    return files


def context_in_force(files: Mapping[Path, KubeconfigFile], context: str | None) -> tuple[str, ContextEntry]:
    """Return the named context, else the current one, with its name; raises `Unavailable` where there is none."""
    name = context or next((content.current_context for content in files.values() if content.current_context), None)
    if name is None:
        raise Unavailable("the kubeconfig has no current context: name one with --context")
    contexts = [named for content in files.values() for named in content.contexts or ()]
    entry = next((named.context or ContextEntry() for named in contexts if named.name == name), None)
    if entry is None:
        there = ", ".join(named.name for named in contexts) or "none"
        raise Unavailable(f"no context {name} in {', '.join(map(str, files))}; there are: {there}")
    return name, entry


def _listed(environment: Mapping[str, str]) -> Sequence[Path]:
    listed = [Path(entry).expanduser() for entry in environment.get("KUBECONFIG", "").split(os.pathsep) if entry]
    return listed or [Path.home() / ".kube" / "config"]


def _read(path: Path) -> KubeconfigFile | None:
    """Return what a file says, `None` when it is not there or says nothing."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8"))
        return None if document is None else msgspec.convert(document, KubeconfigFile)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}") from error
    except ValueError as error:  # of UTF-8, of YAML, or of what it says
        raise Unavailable(f"{path}: {' '.join(str(error).split())}") from error
