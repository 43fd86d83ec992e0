"""Requests go out with the rights that a kubeconfig gives, as with kubectl; else none goes out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from extender.binding.intents import Done, GetNode, NoAnswer
from extender.kubernetes import kubeconfig
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable

SECONDS = 30.0
EXEC = "client.authentication.k8s.io/v1"
ANONYMOUS = ()
Sent = list[tuple[tuple[str, str], ...]]
"""Of each request the headers that say who sends it, in alphabetical order."""


def write(file: Path, user: Mapping[str, Any], server: str = "http://127.0.0.1:9", **cluster: object) -> Path:
    """Write a kubeconfig of one context."""
    document = {
        "contexts": [{"name": "mine", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user}],
        "current-context": "mine",
    }
    file.write_text(yaml.safe_dump(document))
    return file


def program(file: Path, status: object) -> str:
    """Write an exec command that answers `status`, and return its name."""
    answer = json.dumps({"apiVersion": EXEC, "kind": "ExecCredential", "status": status})
    file.write_text(f"#!/bin/sh\necho '{answer}'\n")
    file.chmod(0o755)
    return file.name


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, Sent]]:
    """Serve a node and an empty list and watch."""
    sent: Sent = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        names = ("authorization", "impersonate-")
        sent.append(tuple(sorted((k, v) for k, v in request.headers.items() if k.lower().startswith(names))))
        return web.json_response({"metadata": {"name": "n1", "resourceVersion": "7"}})

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2]), sent
    finally:
        await runner.cleanup()


async def headers_of(user: Mapping[str, Any], file: Path) -> tuple[tuple[str, str], ...]:
    """Return who a single request, a list and a watch come from, which is the same."""
    async with server() as (url, sent), KubeApi.from_kubeconfig(write(file, user, url)) as api:
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
        assert await api.resource("/api/v1/nodes").latest_version() == "7"
        assert [chunk async for chunk in api.resource("/api/v1/nodes").watch("7")]
    assert len(sent) == 3
    assert len(set(sent)) == 1
    return sent[0]


async def test_every_request_goes_out_as_whom_the_user_acts_as(tmp_path: Path) -> None:
    """With its groups, UID and extra fields: whoever is to have few rights has not those of the person."""
    user = {
        "token": "t",
        "as": "viewer",
        "as-uid": "u-7",
        "as-groups": ["dev", "ops"],
        "as-user-extra": {"example.com/why": ["a", "b"]},
    }
    assert await headers_of(user, tmp_path / "kubeconfig") == (
        ("Authorization", "Bearer t"),
        ("Impersonate-Extra-example.com%2Fwhy", "a"),
        ("Impersonate-Extra-example.com%2Fwhy", "b"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "u-7"),
        ("Impersonate-User", "viewer"),
    )


async def test_a_relative_command_is_looked_for_where_the_kubeconfig_is(tmp_path: Path) -> None:
    """Wherever we run."""
    command = program(tmp_path / "login.sh", {"token": "from-exec"})
    user = {"exec": {"apiVersion": EXEC, "command": f"./{command}", "args": None, "env": None}}
    assert await headers_of(user, tmp_path / "kubeconfig") == (("Authorization", "Bearer from-exec"),)


async def test_a_command_without_a_slash_is_looked_for_in_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not where the kubeconfig is."""
    (tmp_path / "bin").mkdir()
    command = program(tmp_path / "bin" / "login.sh", {"token": "from-path"})
    program(tmp_path / "login.sh", {"token": "from-folder"})
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    user = {"exec": {"apiVersion": EXEC, "command": command}}
    assert await headers_of(user, tmp_path / "kubeconfig") == (("Authorization", "Bearer from-path"),)


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({}, ANONYMOUS),
        ({"token": "t", "exec": {"apiVersion": EXEC, "command": "./absent"}}, (("Authorization", "Bearer t"),)),
        ({"token": "t", "tokenFile": "token"}, (("Authorization", "Bearer from-file"),)),
        ({"token": "", "tokenFile": "token"}, (("Authorization", "Bearer from-file"),)),
        ({"token": "t", "exec": None, "auth-provider": None, "as": None}, (("Authorization", "Bearer t"),)),
        ({"username": "u"}, (("Authorization", "Basic dTo="),)),
    ],
    ids=str,
)
async def test_of_several_ways_to_log_in_kubectl_s_counts(
    tmp_path: Path, user: dict[str, Any], headers: tuple[tuple[str, str], ...]
) -> None:
    """A token before a program, and a file's before it; what is empty counts as not there."""
    (tmp_path / "token").write_text("from-file\n")
    assert await headers_of(user, tmp_path / "kubeconfig") == headers


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (
            {"exec": {"apiVersion": EXEC, "command": "./absent", "installHint": "Get it."}},
            "./absent: not found Get it.",
        ),
        ({"exec": {"apiVersion": EXEC, "command": "./fails.sh"}}, "./fails.sh: exec: process returned 3"),
        ({"exec": {"apiVersion": EXEC, "command": "./nothing.sh"}}, "./nothing.sh: answers neither a token nor a"),
        ({"exec": {"apiVersion": EXEC, "command": "./no-status.sh"}}, "./no-status.sh: answers neither a token nor"),
        ({"exec": {"apiVersion": "another/v1", "command": "./nothing.sh"}}, "./nothing.sh: exec: plugin api version"),
        ({"exec": {"apiVersion": EXEC}}, "user me: exec names no command"),
        ({"exec": "./nothing.sh"}, "user me: exec is no mapping"),
        ({"exec": {"command": "x"}, "auth-provider": {"name": "oidc"}}, "user me: has exec and auth-provider"),
        ({"auth-provider": {"name": "azure"}}, "user me: auth-provider azure is not supported; use exec"),
        ({"token": "t", "username": "u", "password": "p"}, "user me: has a token and a password"),
        ({"token": "t", "as-groups": ["g"]}, "user me: as-uid, as-groups and as-user-extra need `as`"),
        ({"token": "t", "as": "a\nX-Other: b"}, "user me: a line break in `as`"),
        ({"token": "t", "as": 7}, "user me: Expected `str`, got `int` - at `$.as`"),
        ({"token": "t", "as": "a", "as-groups": "g"}, "user me: Expected `array`, got `str` - at `$.as-groups`"),
        ({"client-certificate-data": "abc"}, "user me: Incorrect padding"),
    ],
    ids=str,
)
async def test_what_cannot_be_followed_is_refused(tmp_path: Path, user: dict[str, Any], reason: str) -> None:
    """With the file, the user and the reason; no request goes out, not even as nobody."""
    program(tmp_path / "nothing.sh", {})
    program(tmp_path / "no-status.sh", "none")
    (tmp_path / "fails.sh").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "fails.sh").chmod(0o755)
    file = tmp_path / "kubeconfig"
    text = reason.replace("./", f"{tmp_path}/")
    with pytest.raises(Unavailable) as caught:
        async with KubeApi.from_kubeconfig(write(file, user, "https://127.0.0.1:9")):
            pass
    assert str(caught.value).startswith(f"no credentials: {file}: user me: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"users": []}, "FILE: the context names user me, which is not there"),
        ({"users": [{"name": "me", "user": {"token": name}} for name in "ab"]}, "FILE: user me is there twice"),
        ({"clusters": []}, "FILE: the context names cluster here, which is not there"),
        ({"contexts": [{"name": "mine", "context": {"cluster": "here"}}]}, "FILE: context mine names no user"),
        ({"contexts": [{"name": "mine", "context": {"user": "me"}}]}, "FILE: context mine names no cluster"),
        ({"clusters": [{"name": "here", "cluster": {}}]}, "FILE: cluster here: its server has no URL of http or https"),
        (
            {"clusters": [{"name": "here", "cluster": {"server": "https://a", "proxy-url": "socks5://u:secret@p:1"}}]},
            "FILE: cluster here: proxy-url: a proxy of socks5 is not supported; use one of http or https",
        ),
    ],
    ids=str,
)
async def test_a_context_that_is_not_whole_is_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    """Without its user we would be nobody, and without its server somewhere else."""
    file = write(tmp_path / "kubeconfig", {"token": "t"})
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    with pytest.raises(Unavailable) as caught:
        async with KubeApi.from_kubeconfig(file):
            pass
    assert str(caught.value) == "no credentials: " + reason.replace("FILE", str(file))


async def test_relative_paths_begin_at_the_file_that_names_them(tmp_path: Path) -> None:
    """The user's at the user's file, and not at that of the cluster, of the context, or of the first file."""
    files = []
    async with server() as (url, sent):
        written = yaml.safe_load(write(tmp_path / "all", {"tokenFile": "token"}, url).read_text())
        for folder, kind in (("a", "contexts"), ("b", "clusters"), ("c", "users")):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "token").write_text(folder)
            files.append(tmp_path / folder / "kubeconfig")
            files[-1].write_text(yaml.safe_dump({kind: written[kind]}))
        async with KubeApi.from_kubeconfig(files, "mine") as api:
            assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
    assert sent == [(("Authorization", "Bearer c"),)]


async def test_a_kubeconfig_that_becomes_unusable_is_said_once_per_request(tmp_path: Path) -> None:
    """A 401 makes us read it again: the answer is its fault, and no request as nobody follows."""
    seen = []

    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Impersonate-User"))
        write(tmp_path / "kubeconfig", {"token": "t", "as-groups": ["g"]}, url)
        return web.Response(status=401)

    runner = web.ServerRunner(web.Server(refuse, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}".format(*runner.addresses[0][:2])
    try:
        file = write(tmp_path / "kubeconfig", {"token": "t", "as": "viewer"}, url)
        async with KubeApi.from_kubeconfig(file) as api:
            with pytest.raises(Unavailable, match="need `as`"):
                await api.resource("/api/v1/nodes").latest_version()
            answer = await api.execute(GetNode("n1"), SECONDS)
    finally:
        await runner.cleanup()
    assert isinstance(answer, NoAnswer)
    assert "need `as`" in answer.message
    assert seen == ["viewer", "viewer"]


def test_a_pod_without_a_kubeconfig_is_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with kubectl: a file that is there comes first, and one that is named must be there."""
    (tmp_path / "namespace").write_text("gputopo-system")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    file = tmp_path / "config"
    environment = {"KUBECONFIG": str(file)}
    assert Kubeconfig.find(None, None, environment) == Kubeconfig((), "", "gputopo-system")
    for named, context in ((file, None), (None, "mine")):
        with pytest.raises(Unavailable, match="no kubeconfig"):
            Kubeconfig.find(named, context, environment)
    write(file, {})
    assert Kubeconfig.find(None, None, environment).files == (file,)
