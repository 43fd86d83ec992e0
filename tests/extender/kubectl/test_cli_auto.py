"""`--extender auto` finds the extender whose kube-scheduler leads, and reaches it by `kubectl port-forward`."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, join
from extender.kubectl.leader import leader
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.rest import Request
from tests.extender.plugin import invoke
from tests.extender.serving import served

A, B = "gputopo-scheduler-5c9-aaaaa", "gputopo-scheduler-5c9-bbbbb"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/g/leases"
SCHEDULER = "gputopo-scheduler"
FORWARDS = 'echo "Forwarding from 127.0.0.1:{port} -> 8888"'


def pod(
    name: str,
    *,
    ready: bool = True,
    component: str = "scheduler",
    namespace: str = "g",
    tls: bool = False,
    deployment: str = SCHEDULER,
) -> dict[str, Any]:
    """Return a pod of the chart."""
    labels = {"app.kubernetes.io/name": "gputopo", "app.kubernetes.io/component": component}
    conditions = [{"type": "Ready", "status": str(ready)}]
    owner = {"kind": "ReplicaSet", "name": f"{deployment}-5c9", "controller": True}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}
    volumes = [{"name": "config"}, *([{"name": "tls"}] if tls else [])]
    return {"metadata": metadata, "spec": {"volumes": volumes}, "status": {"conditions": conditions}}


def kubectl(folder: Path, line: str) -> None:
    """Put a kubectl on the PATH that notes its words and its process, says a line, and stays."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/words\necho $$ > {folder}/pid\n{line}\nexec sleep 600\n')
    program.chmod(0o755)


async def ask(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pods: list[dict[str, Any]],
    lease: tuple[int, dict[str, Any]] = (404, {"message": "no such lease"}),
    line: str = FORWARDS,
    verb: tuple[str, ...] = ("nodes",),
) -> Result:
    """Ask `auto` in a cluster with these pods of gputopo and this Lease; the extender is one of this machine."""
    really = KubeApi.send

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if "labelSelector" in request.path:
            return 200, json.dumps({"items": pods}).encode()
        if request.path == f"{LEASES}/{SCHEDULER}":
            return lease[0], json.dumps(lease[1]).encode()
        return await really(api, request)

    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        monkeypatch.setattr(KubeApi, "send", send)
        words = (*verb, "--extender", "auto", "--kubeconfig", str(tmp_path / "kubeconfig"))
        if line != FORWARDS:
            kubectl(tmp_path, line)
            return await asyncio.to_thread(invoke, *words)
        async with served(tmp_path / "kubeconfig") as extender:
            kubectl(tmp_path, line.format(port=extender.url.rpartition(":")[2]))
            return await asyncio.to_thread(invoke, *words)


@pytest.mark.slow
async def test_the_extender_of_the_leading_kube_scheduler_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of the other replica; and kubectl ends with the command."""
    lease = (200, {"spec": {"holderIdentity": f"{B}_6d1f"}})
    result = await ask(tmp_path, monkeypatch, [pod(A), pod(B)], lease, verb=("status",))
    assert (result.exit_code, result.stderr) == (1, ""), result.output
    assert "extender: 0." in result.stdout
    words = f"port-forward --namespace=g pod/{B} :extender --address=127.0.0.1 --kubeconfig={tmp_path}/kubeconfig\n"
    assert (tmp_path / "words").read_text() == words
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: list[dict[str, Any]], leases: dict[str, str]
) -> tuple[str, str]:
    """Return who leads where there are these pods, and Leases with these holders, by name."""

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if "labelSelector" in request.path:
            return 200, json.dumps({"items": pods}).encode()
        holder = leases[request.path.removeprefix(f"{LEASES}/")]
        return 200, json.dumps({"spec": {"holderIdentity": holder}}).encode()

    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    monkeypatch.setattr(KubeApi, "send", send)
    return await leader(Kubeconfig.find(tmp_path / "kubeconfig", None, {}))


async def test_of_one_scheduler_no_lease_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is not ready does not count."""
    assert await leads(tmp_path, monkeypatch, [pod(A, ready=False), pod(B)], {}) == ("g", B)


@pytest.mark.parametrize(
    ("form", "lease", "holder"),
    [
        ({}, SCHEDULER, f"{B}_6d1f"),
        ({"deployment": "x" * 52 + "-scheduler"}, "x" * 52 + "-scheduler", f"{B}_6d1f"),
        ({"component": "extender", "deployment": "gputopo-extender"}, "gputopo-queue", f"{B}:8888"),
    ],
)
async def test_each_form_of_the_chart_has_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: dict[str, Any], lease: str, holder: str
) -> None:
    """Kubernetes cuts the names of pods whose Deployment has a long one; without a kube-scheduler the planner leads."""
    assert await leads(tmp_path, monkeypatch, [pod(A, **form), pod(B, **form)], {lease: holder}) == ("g", B)


@pytest.mark.parametrize(
    ("pods", "lease", "line", "reason"),
    [
        ([], None, "", "no pod of gputopo's scheduler is ready in this cluster"),
        ([pod(A, ready=False)], None, "", "no pod of gputopo's scheduler is ready in this cluster"),
        (
            [pod(A), pod("e", component="extender", tls=True)],
            None,
            "",
            "extenders behind a Service answer only clients with a",
        ),
        (
            [pod(A), pod(B, namespace="h")],
            None,
            "",
            "there are several schedulers with gputopo: g/gputopo-scheduler, h/",
        ),
        ([pod(A), pod(B)], (403, {"message": "forbidden"}), "", "/apis/coordination.k8s.io/v1/namespaces/g/leases/"),
        ([pod(A), pod(B)], (200, {"spec": {}}), "", "no ready pod holds the Lease g/gputopo-scheduler, but nobody"),
        ([pod(A)], None, "echo no right >&2; exit 1", "kubectl port-forward: no right"),
    ],
)
async def test_where_no_extender_is_found_the_reason_stands_before_the_estimate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pods: list[dict[str, Any]],
    lease: tuple[int, dict[str, Any]] | None,
    line: str,
    reason: str,
) -> None:
    """As where a URL does not answer."""
    result = await ask(tmp_path, monkeypatch, pods, lease or (500, {}), line)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"--extender auto: {reason}"), result.stderr
    assert result.stderr.endswith("; this is an estimate from the annotations alone\n")
    assert "n1" in result.stdout


async def test_status_says_that_no_extender_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And tells all that the API server tells."""
    result = await ask(tmp_path, monkeypatch, [], line="", verb=("status",))
    assert "extender: not known (none was found)\n" in result.stdout


async def test_what_only_an_extender_knows_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2."""
    result = await ask(tmp_path, monkeypatch, [], line="", verb=("measured",))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "--extender auto: no pod of gputopo's scheduler is ready in this cluster\n"
