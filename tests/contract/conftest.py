"""The two backends of the contract suite: the API double, and a real kube-apiserver with its etcd."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from tests.cluster.api import ApiError
from tests.cluster.conftest import binaries
from tests.cluster.control_plane import ControlPlane
from tests.world.http_faults import RequestFault, Rule, Unreliable

__all__ = ["binaries"]

_numbers = count()
CROWD = "crowd"
_ONE_SEAT = {
    "metadata": {"name": CROWD},
    "spec": {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        },
    },
}
_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
_CROWD_SITS_THERE = {
    "metadata": {"name": CROWD},
    "spec": {
        "priorityLevelConfiguration": {"name": CROWD},
        "matchingPrecedence": 2,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": CROWD}}], "resourceRules": [_EVERYTHING]}],
    },
}


class Backend(Protocol):
    """Where the suite runs, and the one thing that no request of the API can do."""

    kubeconfig: Path

    def compact(self) -> None:
        """Forget the history up to now."""

    def crowded(self) -> AbstractContextManager[Path]:
        """Give the kubeconfig of somebody whose requests are more than the server wants to serve."""


class Double:
    """The double of `benchmarks.simulated.double`, in this process."""

    def __init__(self, server: ApiServer, faults: Unreliable, folder: Path) -> None:
        self._store = server.store
        self._faults = faults
        self.kubeconfig = folder / "kubeconfig"
        write_kubeconfig(self.kubeconfig, server.url)

    def compact(self) -> None:
        self._store.compact()

    @contextmanager
    def crowded(self) -> Iterator[Path]:
        with self._faults.during(Rule(RequestFault.BUSY, probability=0.5)):
            yield self.kubeconfig


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
        self._control_plane.admin.close()  # its connections were to the server before

    @contextmanager
    def crowded(self) -> Iterator[Path]:
        """Let a user have one seat, and nobody wait for it."""
        admin, flow = self._control_plane.admin, "/apis/flowcontrol.apiserver.k8s.io/v1"
        for kind, made in (("prioritylevelconfigurations", _ONE_SEAT), ("flowschemas", _CROWD_SITS_THERE)):
            with suppress(ApiError):  # it may be there already
                admin.post(f"{flow}/{kind}", made)
        yield self._control_plane.kubeconfig(CROWD)

    def _etcd(self, call: str, body: object) -> dict[str, dict[str, str]]:
        """Call etcd through its JSON gateway."""
        url = f"{self._control_plane.etcd_url}/v3/{call}"
        request = urllib.request.Request(url, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            answered: dict[str, dict[str, str]] = json.load(answer)
        return answered


@pytest.fixture(scope="package")
def contract_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Start a control plane of this suite's own: it compacts etcd under everybody's feet."""
    with ControlPlane(request.getfixturevalue("binaries"), users={CROWD: []}) as running:
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
    faults = Unreliable()
    async with ApiServer(ObjectStore(), faults=faults) as server:
        yield Double(server, faults, tmp_path)


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
