"""Whom we trust as the API server, and as whom we come, is what the files say now."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from agent.node.kube import KubernetesNode
from benchmarks.processes.kubeconfig import write_kubeconfig
from extender.binding.intents import Done, GetNode, NoAnswer
from extender.cluster.objects.kinds import Node
from extender.kubectl import extender_client
from extender.kubernetes.documents import decoder
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable, list_objects
from tests.security.certificates import Authority, Certificate

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
SECONDS = 30.0
NODE = {"metadata": {"name": "n1"}}


class TlsServer:
    """An API server with one node, whose certificate may be replaced; every connection is for one request."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.folder = folder
        self.url = ""
        self.trust(authority)
        self.show(authority.sign("first", "/CN=kube-apiserver", "serverAuth"))

    def show(self, certificate: Certificate) -> None:
        """Have another certificate from now on."""
        self.context.load_cert_chain(certificate.certificate, certificate.key)

    def trust(self, authority: Authority) -> None:
        """Let clients have another CA file."""
        shutil.copy(authority.certificate, self.folder / "ca.crt")

    async def answer(self, _: web.BaseRequest) -> web.StreamResponse:
        """Say the same to everybody."""
        return web.json_response(NODE, headers={"Connection": "close"})


@asynccontextmanager
async def tls_server(folder: Path, authority: Authority) -> AsyncIterator[TlsServer]:
    """Serve, and write a kubeconfig with the path of the CA's file."""
    server = TlsServer(folder, authority)
    runner = web.ServerRunner(web.Server(server.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.context).start()
    server.url = "https://{}:{}".format(*runner.addresses[0][:2])
    write_kubeconfig(folder / "kubeconfig", server.url, ca_file=folder / "ca.crt")
    try:
        yield server
    finally:
        await runner.cleanup()


async def test_the_plugin_says_in_words_that_an_extenders_certificate_is_not_trusted(tmp_path: Path) -> None:
    """Without the names and places that OpenSSL's errors have."""
    async with tls_server(tmp_path, Authority(tmp_path, "old")) as server:
        with pytest.raises(
            extender_client.ExtenderUnavailable, match=r"^its certificate cannot be verified: [a-z -]+$"
        ):
            await asyncio.to_thread(extender_client.nodes, server.url)


async def test_the_api_servers_ca_is_followed_when_it_is_replaced(tmp_path: Path) -> None:
    """The next connection cannot be checked with the old one; nothing was sent on it, so it is tried again with the new."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    async with tls_server(tmp_path, old) as server, KubeApi.from_kubeconfig(tmp_path / "kubeconfig") as api:
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
        server.show(new.sign("second", "/CN=kube-apiserver", "serverAuth"))
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), NoAnswer), "nobody has told us of the new one"
        server.trust(new)
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)


async def test_a_certificate_that_cannot_be_verified_is_a_sentence(tmp_path: Path) -> None:
    """As a request and as a stream: with the reason, and without an object of Python."""
    authority = Authority(tmp_path, "old")
    async with tls_server(tmp_path, authority) as server:
        server.trust(Authority(tmp_path, "new"))
        async with KubeApi.from_kubeconfig(tmp_path / "kubeconfig") as api:
            answer = await api.execute(GetNode("n1"), SECONDS)
            with pytest.raises(Unavailable) as listed:
                await list_objects(api.resource("/api/v1/nodes"), decoder(Node))
    assert isinstance(answer, NoAnswer)
    for words in (answer.message, str(listed.value)):
        assert re.fullmatch(r"the API server's certificate cannot be verified: [a-z -]+", words)


async def test_a_ca_in_the_kubeconfig_itself_is_followed_too(tmp_path: Path) -> None:
    """The file that names it is read again."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    async with tls_server(tmp_path, old) as server, KubeApi.from_kubeconfig(tmp_path / "kubeconfig") as api:
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
        server.show(new.sign("second", "/CN=kube-apiserver", "serverAuth"))
        write_kubeconfig(tmp_path / "kubeconfig", server.url, ca_file=new.certificate)
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)


async def test_a_ca_that_was_taken_away_is_trusted_no_longer(tmp_path: Path) -> None:
    """Somebody may have its key, which is why it was; nothing fails that would make us look."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    async with (
        tls_server(tmp_path, old) as server,
        KubeApi.from_kubeconfig(tmp_path / "kubeconfig", trust_seconds=0.0) as api,
    ):
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
        server.trust(new)
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), NoAnswer)


async def test_a_ca_file_of_no_use_changes_nothing(tmp_path: Path) -> None:
    """It is being written, perhaps; the server is still the one that we know."""
    authority = Authority(tmp_path, "old")
    async with (
        tls_server(tmp_path, authority),
        KubeApi.from_kubeconfig(tmp_path / "kubeconfig", trust_seconds=0.0) as api,
    ):
        for damage in ("", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            (tmp_path / "ca.crt").write_text(damage)
            assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
        (tmp_path / "ca.crt").unlink()
        assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)


async def test_the_agent_follows_the_api_servers_ca(tmp_path: Path) -> None:
    """Its client reads the file for each connection."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    async with tls_server(tmp_path, old) as server:
        node = KubernetesNode("n1", tmp_path / "kubeconfig", None, SECONDS)
        assert await asyncio.to_thread(node.read) == {}
        server.show(new.sign("second", "/CN=kube-apiserver", "serverAuth"))
        server.trust(new)
        assert await asyncio.to_thread(node.read) == {}
