"""The two backends of the contract suite: the API double, and a real kube-apiserver with its etcd."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from benchmarks.client import ApiClient
from benchmarks.double.server import ApiServer, write_kubeconfig
from benchmarks.double.store import Store
from tests.cluster.conftest import binaries
from tests.cluster.control_plane import ControlPlane

__all__ = ["binaries"]

_numbers = count()


class Backend(Protocol):
    """Where the suite runs, and the one thing that no request of the API can do."""

    kubeconfig: Path

    def compact(self) -> None:
        """Forget the history up to now."""


class Double:
    """The double of `benchmarks.double`, in this process."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self._store = server.store
        self.kubeconfig = folder / "kubeconfig"
        write_kubeconfig(self.kubeconfig, server.url)

    def compact(self) -> None:
        self._store.compact()


class KubeApiServer:
    """The real kube-apiserver."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self.kubeconfig = control_plane.kubeconfig()

    def compact(self) -> None:
        revision = self._etcd("kv/range", {"key": base64.b64encode(b"x").decode()})["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})
        # Its watch cache would still know what etcd has forgotten.
        self._control_plane.apiserver.stop()
        self._control_plane.apiserver.start()
        self._control_plane.apiserver.wait_ready()

    def _etcd(self, call: str, body: object) -> dict[str, dict[str, str]]:
        """Call etcd through its JSON gateway."""
        url = f"{self._control_plane.etcd_url}/v3/{call}"
        request = urllib.request.Request(url, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            answered: dict[str, dict[str, str]] = json.load(answer)
        return answered


@pytest.fixture(scope="session")
def contract_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Start a control plane of this suite's own: it compacts etcd under everybody's feet."""
    with ControlPlane(request.getfixturevalue("binaries")) as running:
        yield running


@pytest.fixture(params=["double", pytest.param("kube-apiserver", marks=pytest.mark.cluster)])
def real(request: pytest.FixtureRequest) -> ControlPlane | None:
    """Return the real control plane, or `None` where the double has its turn."""
    if request.param == "double":
        return None
    running: ControlPlane = request.getfixturevalue("contract_control_plane")
    return running


@pytest.fixture
async def backend(real: ControlPlane | None, tmp_path: Path) -> AsyncIterator[Backend]:
    """Start the double, or borrow the real API server."""
    if real is not None:
        yield KubeApiServer(real)
        return
    async with ApiServer(Store()) as server:
        yield Double(server, tmp_path)


@pytest.fixture
async def api(backend: Backend) -> AsyncIterator[ApiClient]:
    """Return the client: the same code for both backends."""
    async with ApiClient.from_kubeconfig(backend.kubeconfig) as client:
        yield client


@pytest.fixture
async def pods(api: ApiClient) -> str:
    """Return the path of the pods of a fresh namespace."""
    name = f"contract-{next(_numbers)}"
    (await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})).ok()
    return f"/api/v1/namespaces/{name}/pods"


@pytest.fixture
async def node(api: ApiClient) -> AsyncIterator[str]:
    """Return the path of a fresh node with one annotation, and delete it afterwards."""
    name = f"node-{next(_numbers)}"
    made = {"metadata": {"name": name, "annotations": {"example.com/key": "old"}}}
    (await api.call("POST", "/api/v1/nodes", made)).ok()
    yield f"/api/v1/nodes/{name}"
    await api.call("DELETE", f"/api/v1/nodes/{name}")
