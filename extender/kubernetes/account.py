"""What kubeconfig files say of one context: its cluster, its user, and whom that user acts as.

A kubeconfig that cannot be followed to the letter is refused: otherwise requests would go out with other rights than it gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from extender.kubernetes.kubeconfig import context_in_force, read_files
from extender.kubernetes.proxies import proxy_of
from extender.kubernetes.reflector import Unavailable

Headers = tuple[tuple[str, str], ...]

_PROXIES: Final = frozenset({"http", "https"})
_PROVIDERS: Final = frozenset({"gcp", "oidc"})
"""The `auth-provider`s that the client knows; it would ignore another one."""
_IN_A_HEADER_NAME: Final = "!#$&'*+-.^_`|~"


class _Named(Protocol):
    name: str


Entry = TypeVar("Entry", bound=_Named)


class _Impersonation(msgspec.Struct, rename="kebab"):
    user: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}


@dataclass(frozen=True, slots=True)
class Account:
    """One user at one cluster, with absolute paths and without empty entries."""

    place: str
    """The file and the name of the user, for messages."""
    cluster: dict[str, Any]
    user: dict[str, Any]
    impersonation: Headers


def read_account(paths: Sequence[Path], context: str | None, environment: Mapping[str, str]) -> Account:
    """Read the named context of these files, else the current one.

    Args:
        paths: Of what several files say the first counts.
        context: Its name.
        environment: Usually `os.environ`; names a proxy where the cluster names none.

    Raises:
        Unavailable: There is no such context, or we cannot do what the files say.

    """
    files = read_files(paths)
    name, entry = context_in_force(files, context)
    if not entry.cluster or not entry.user:
        missing = "user" if entry.cluster else "cluster"
        raise Unavailable(f"{', '.join(map(str, files))}: context {name} names no {missing}")
    file, cluster = _named("cluster", entry.cluster, ((file, content.clusters) for file, content in files.items()))
    place = f"{file}: cluster {entry.cluster}"
    settings = _with_proxy(place, _absolute(file, _filled(cluster.cluster), "certificate-authority"), environment)
    file, user = _named("user", entry.user, ((file, content.users) for file, content in files.items()))
    place = f"{file}: user {entry.user}"
    credentials = _filled(user.user)
    impersonation = _impersonation(place, credentials)
    return Account(place, settings, _credentials(place, file, credentials), impersonation)


def _named(kind: str, name: str, files: Iterable[tuple[Path, Sequence[Entry] | None]]) -> tuple[Path, Entry]:
    """Return the entry of the first file that has one, and that file."""
    paths = []
    for file, entries in files:
        paths.append(str(file))
        namesakes = [entry for entry in entries or () if entry.name == name]
        if len(namesakes) > 1:
            raise Unavailable(f"{file}: {kind} {name} is there twice")
        if namesakes:
            return file, namesakes[0]
    raise Unavailable(f"{', '.join(paths)}: the context names {kind} {name}, which is not there")


def _filled(entry: Mapping[str, Any] | None) -> dict[str, Any]:
    """Leave out what is empty: for kubectl that is the same as what is not there."""
    return {key: value for key, value in (entry or {}).items() if value not in (None, "", [], {})}


def _absolute(file: Path, entry: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Let relative paths begin at the folder of their file."""
    return entry | {key: str((file.parent / str(entry[key])).absolute()) for key in keys if key in entry}


def _with_proxy(place: str, cluster: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    server = str(cluster.get("server", ""))
    if urlsplit(server).scheme not in {"http", "https"}:
        raise Unavailable(f"{place}: its server has no URL of http or https")
    if "proxy-url" in cluster:
        proxy: tuple[str, str] | None = f"{place}: proxy-url", str(cluster["proxy-url"])
    else:
        proxy = proxy_of(server, environment)
    if proxy is None:
        return cluster
    source, url = proxy
    scheme = urlsplit(url).scheme
    if scheme not in _PROXIES:
        raise Unavailable(f"{source}: a proxy of {scheme or 'no scheme'} is not supported; use one of http or https")
    return cluster | {"proxy-url": url}


def _credentials(place: str, file: Path, user: dict[str, Any]) -> dict[str, Any]:
    """Return the user with the one way to log in that kubectl takes: a token or a password counts before a program."""
    if "username" in user:
        user = {"password": "", **user}
        if "token" in user or "tokenFile" in user:
            raise Unavailable(f"{place}: has a token and a password; only one is allowed")
    if "exec" in user and "auth-provider" in user:
        raise Unavailable(f"{place}: has exec and auth-provider; only one is allowed")
    drop = {"exec", "auth-provider"} if user.keys() & {"token", "tokenFile", "username"} else set()
    drop |= {"token"} if "tokenFile" in user else set()
    user = {key: value for key, value in user.items() if key not in drop}
    provider = _section(place, user, "auth-provider").get("name")
    if "auth-provider" in user and provider not in _PROVIDERS:
        raise Unavailable(f"{place}: auth-provider {provider} is not supported; use exec")
    command = _filled(_section(place, user, "exec"))
    if "exec" in user:
        if "command" not in command:
            raise Unavailable(f"{place}: exec names no command")
        is_path = os.sep in str(command["command"])  # any other command is looked for in $PATH
        user["exec"] = _absolute(file, command, "command") if is_path else command
    return _absolute(file, user, "client-certificate", "client-key", "tokenFile")


def _section(place: str, user: Mapping[str, Any], key: str) -> dict[str, Any]:
    section = user.get(key, {})
    if not isinstance(section, dict):
        raise Unavailable(f"{place}: {key} is no mapping")
    return section


def _impersonation(place: str, user: dict[str, Any]) -> Headers:
    """Return the headers that say whom the user acts as."""
    try:
        said = msgspec.convert(user, _Impersonation)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{place}: {error}") from error
    headers = [("Impersonate-Uid", said.as_uid)] if said.as_uid else []
    headers += [("Impersonate-Group", group) for group in said.as_groups]
    for key, values in said.as_user_extra.items():
        headers += [(f"Impersonate-Extra-{quote(key, safe=_IN_A_HEADER_NAME)}", value) for value in values]
    if not said.user:
        if headers:
            raise Unavailable(f"{place}: as-uid, as-groups and as-user-extra need `as`")
        return ()
    headers = [("Impersonate-User", said.user), *headers]
    if any(character in value for _, value in headers for character in "\r\n\0"):
        raise Unavailable(f"{place}: a line break in `as`, `as-uid`, `as-groups` or `as-user-extra`")
    return tuple(headers)
