"""SEC1, SEC2 and H3: beyond loopback only who has a certificate of the clients' CA is heard, also while certificates change."""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from tests.cluster.component import Component
from tests.cluster.polling import eventually
from tests.security.certificates import Authority, Certificate

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")


FEW_OPEN_FILES = 'ulimit -Sn 256; exec "$@"'
"""As many runtimes start a container: a soft limit that is lower than what it may have."""


@dataclass(frozen=True)
class Endpoint:
    """An extender behind TLS: what it reads its certificates from, who signs them, and who signs its callers'."""

    port: int
    process: Component
    folder: Path
    servers: Authority
    callers: Authority

    def show(self, certificate: Certificate) -> None:
        """Let the extender have another certificate."""
        shutil.copy(certificate.key, self.folder / "tls.key")
        shutil.copy(certificate.certificate, self.folder / "tls.crt")

    def believe(self, callers: Authority) -> None:
        """Let the extender have another clients' CA."""
        shutil.copy(callers.certificate, self.folder / "ca.crt")

    def context(self, certificate: Certificate | None) -> ssl.SSLContext:
        """Return what a caller with that certificate speaks TLS by; it checks the extender's."""
        context = ssl.create_default_context(cafile=str(self.servers.certificate))
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return context

    def answers(self, context: ssl.SSLContext) -> bool:
        """Whether a caller gets an HTTP answer, on a connection of its own."""
        with closing(http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)) as connection:
            try:
                connection.request("GET", "/livez")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def serial(self, context: ssl.SSLContext) -> str:
        """Return the serial number of the certificate that a caller is shown."""
        with (
            socket.create_connection(("127.0.0.1", self.port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            certificate = connection.getpeercert()
            assert certificate is not None
            return str(certificate["serialNumber"])


@contextmanager
def running_endpoint(folder: Path) -> Iterator[Endpoint]:
    """Run an extender that listens on all addresses, for nobody's cluster."""
    servers, callers = Authority(folder, "servers"), Authority(folder, "callers")
    port, health_port = free_port(), free_port()
    write_kubeconfig(folder / "kubeconfig", "http://127.0.0.1:9")
    files = {"certFile": "tls.crt", "keyFile": "tls.key", "clientCaFile": "ca.crt"}
    document = {
        "apiVersion": "config.gputopo.dev/v1alpha1",
        "kind": "ExtenderConfiguration",
        "listen": {"host": "0.0.0.0", "port": port},
        "tls": {key: str(folder / file) for key, file in files.items()} | {"reload": "200ms"},
        "health": {"host": "127.0.0.1", "port": health_port},
        "kubernetes": {"kubeconfig": str(folder / "kubeconfig")},
    }
    (folder / "extender.yaml").write_text(yaml.safe_dump(document))
    program = (
        "sh",
        "-c",
        FEW_OPEN_FILES,
        "sh",
        sys.executable,
        "-m",
        "extender",
        "--config",
        str(folder / "extender.yaml"),
    )
    process = Component("extender", program, folder, f"http://127.0.0.1:{health_port}/livez")
    running = Endpoint(port, process, folder, servers, callers)
    running.show(servers.sign("extender", "/CN=extender", "serverAuth"))
    running.believe(callers)
    with process.running():
        yield running


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """Share one between the tests that need no CA but its first; each may leave it with another certificate."""
    with running_endpoint(tmp_path_factory.mktemp("tls")) as shared:
        yield shared


@pytest.fixture
def own_endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """Give a test one of its own, to do with as it likes."""
    with running_endpoint(tmp_path) as own:
        yield own


@pytest.mark.slow
def test_sec1_only_a_certificate_of_the_clients_ca_is_heard(endpoint: Endpoint) -> None:
    """None, a foreign one, an expired one, a server's and a kubelet's own are refused; kube-scheduler's is not."""
    callers = endpoint.callers
    cluster = Authority(endpoint.folder, "cluster")
    refused = {
        "none": None,
        "foreign, with the right names": Authority(endpoint.folder, "foreign").sign("x", "/CN=kube-scheduler"),
        "expired": callers.sign("expired", "/CN=kube-scheduler", days=-1),
        "kubelet's": cluster.sign("kubelet", "/O=system:nodes/CN=system:node:n1"),
        "cluster admin's": cluster.sign("admin", "/O=system:masters/CN=admin"),
        "for servers": callers.sign("server", "/CN=kube-scheduler", "serverAuth"),
        "the extender's own": endpoint.servers.sign("itself", "/CN=extender", "clientAuth,serverAuth"),
    }
    heard = [name for name, certificate in refused.items() if endpoint.answers(endpoint.context(certificate))]
    assert heard == []
    assert endpoint.answers(endpoint.context(callers.sign("scheduler", "/CN=kube-scheduler")))


def test_sec1_nothing_older_and_nothing_plain_is_heard(endpoint: Endpoint) -> None:
    """TLS 1.2 would resume sessions without the certificate; HTTP has none."""
    older = endpoint.context(endpoint.callers.sign("scheduler", "/CN=kube-scheduler"))
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    assert not endpoint.answers(older)
    with closing(http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)) as plain:
        plain.request("GET", "/livez")
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.getresponse()


def test_sec1_sessions_are_never_resumed(endpoint: Endpoint) -> None:
    """Every connection shows its certificate, whoever had one before."""
    context = endpoint.context(endpoint.callers.sign("scheduler", "/CN=kube-scheduler"))
    with closing(http.client.HTTPSConnection("127.0.0.1", endpoint.port, timeout=10, context=context)) as connection:
        connection.request("GET", "/livez")
        connection.getresponse().read()
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.sock.session is None or not connection.sock.session.has_ticket


@contextmanager
def calling(endpoint: Endpoint, context: ssl.SSLContext) -> Iterator[list[bool]]:
    """Call again and again, each time anew, for the length of a `with` block; give what became of the calls."""
    answered, over = list[bool](), threading.Event()

    def call() -> None:
        while not over.is_set():
            answered.append(endpoint.answers(context))

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield answered
    finally:
        over.set()
        caller.join()


def renew(endpoint: Endpoint, context: ssl.SSLContext, name: str) -> None:
    """Let the extender have a new certificate, and return when it is in use."""
    before = endpoint.serial(context)
    endpoint.show(endpoint.servers.sign(name, "/CN=extender", "serverAuth"))
    eventually(lambda: endpoint.serial(context) != before)


@pytest.mark.slow
def test_sec2_certificate_is_renewed_without_a_failed_call(endpoint: Endpoint) -> None:
    """Ten times, while calls go on; each new one is in use as soon as the files were looked at."""
    context = endpoint.context(endpoint.callers.sign("scheduler", "/CN=kube-scheduler"))
    with calling(endpoint, context) as answered:
        for number in range(10):
            renew(endpoint, context, f"renewed-{number}")
    assert len(answered) > 10 and all(answered)


def test_sec2_connection_outlives_a_renewal(endpoint: Endpoint) -> None:
    """kube-scheduler keeps its connection."""
    context = endpoint.context(endpoint.callers.sign("scheduler", "/CN=kube-scheduler"))
    with closing(http.client.HTTPSConnection("127.0.0.1", endpoint.port, timeout=10, context=context)) as connection:
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"ok"
        socket_before = connection.sock
        renew(endpoint, context, "renewed")
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"ok"
        assert connection.sock is socket_before


@pytest.mark.slow
def test_sec2_clients_ca_is_replaced(own_endpoint: Endpoint) -> None:
    """Who had a certificate of the old one is refused, who has one of the new one is heard."""
    old = own_endpoint.context(own_endpoint.callers.sign("old", "/CN=kube-scheduler"))
    successor = Authority(own_endpoint.folder, "successor")
    new = own_endpoint.context(successor.sign("new", "/CN=kube-scheduler"))
    assert own_endpoint.answers(old) and not own_endpoint.answers(new)
    own_endpoint.believe(successor)
    eventually(lambda: own_endpoint.answers(new))
    assert not own_endpoint.answers(old)


@pytest.mark.slow
def test_sec2_files_of_no_use_change_nothing(own_endpoint: Endpoint) -> None:
    """A key that is not the certificate's, a CA that is none, a file that is gone: what was in use stays, and that is logged."""
    context = own_endpoint.context(own_endpoint.callers.sign("scheduler", "/CN=kube-scheduler"))
    serial = own_endpoint.serial(context)
    stranger = own_endpoint.servers.sign("stranger", "/CN=extender", "serverAuth")
    shutil.copy(stranger.key, own_endpoint.folder / "tls.key")
    eventually(lambda: "certificates not renewed" in own_endpoint.process.log.read_text())
    (own_endpoint.folder / "ca.crt").unlink()
    assert own_endpoint.serial(context) == serial and own_endpoint.answers(context)
    own_endpoint.believe(own_endpoint.callers)
    own_endpoint.show(stranger)
    eventually(lambda: own_endpoint.serial(context) != serial)


@pytest.mark.slow
def test_h3_silent_connections_are_cut_in_the_handshake(
    own_endpoint: Endpoint, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """1,000 that never say a word are gone within 5 s; meanwhile good calls are answered as ever."""
    context = own_endpoint.context(own_endpoint.callers.sign("scheduler", "/CN=kube-scheduler"))
    began = time.monotonic()
    silent = [socket.create_connection(("127.0.0.1", own_endpoint.port), timeout=60) for _ in range(1000)]
    try:
        with calling(own_endpoint, context) as answered:
            assert all(gone(connection) for connection in silent)
            seconds = time.monotonic() - began
        figure(f"H3: 1,000 silent connections cut after {seconds:.1f} s; {len(answered)} good calls meanwhile")
        assert seconds <= goal(6)
        assert len(answered) > 20 and all(answered)
        assert '"logger":"asyncio"' not in own_endpoint.process.log.read_text(), "refusals fill no log"
    finally:
        for connection in silent:
            connection.close()


def gone(connection: socket.socket) -> bool:
    """Wait until the other end hangs up."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
