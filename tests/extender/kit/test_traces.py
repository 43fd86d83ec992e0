"""A pod is one trace: the verbs that were answered about it, and within its bind the requests to the API server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.processes.process import free_port
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop, Unschedulable
from extender.kit.traces import request, started, trace_id
from tests.extender.otlp import collecting
from tests.extender.polling import eventually
from tests.extender.serving import serving
from topology.annotations import keys

NODES = [SimulatedNode(name, "dgx-a100", used=(0, 1, 2, 3)) for name in ("n1", "n2")]


@pytest.mark.slow
async def test_all_verbs_of_a_pod_are_one_trace_with_the_requests_of_its_bind_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the UID alone: nothing else is handed from one verb to the next."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with serving(tmp_path, *NODES) as extender:
            loop = SchedulerLoop(extender.api, extender.session, extender.url)
            pod, other = (
                await extender.create("train", 4),
                await extender.create("later", 2, {keys.MIN_BANDWIDTH: "9999"}),
            )
            bound = await loop.schedule(pod)
            assert isinstance(bound, BoundPod)
            assert isinstance(await loop.schedule(other), Unschedulable)
    spans = collector.of(trace_id(pod["metadata"]["uid"]))
    verbs = {span.name: span for span in spans if not span.parent}
    assert verbs.keys() == {"filter", "prioritize", "bind"}
    assert (
        verbs["bind"].attributes.items()
        >= {
            "k8s.pod.uid": pod["metadata"]["uid"],
            "gputopo.pod": "default/train",
            "gputopo.node": bound.node,
            "gputopo.verdict": "bound",
        }.items()
    )
    inside = [span for span in spans if span.parent]
    assert {span.parent for span in inside} == {verbs["bind"].id}
    asked = [(span.name, span.attributes["url.path"], span.attributes["http.response.status_code"]) for span in inside]
    assert ("PATCH API", f"/api/v1/nodes/{bound.node}", 200) in asked
    assert ("POST API", "/api/v1/namespaces/default/pods/train/binding", 201) in asked
    assert sum(span.nanoseconds for span in inside) < verbs["bind"].nanoseconds
    refused = collector.of(trace_id(other["metadata"]["uid"]))
    assert [(span.name, span.attributes["gputopo.verdict"]) for span in refused] == [("filter", "no-fit")]
    assert len(spans) + len(refused) == len(collector.spans)
    assert {span.service for span in collector.spans} == {"gputopo-extender"}


@pytest.mark.slow
async def test_a_sampler_keeps_all_of_a_pod_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of UUIDs, too, whose bits are not all chance."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    nodes = [SimulatedNode(f"n{number}", "dgx-a100") for number in range(4)]
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with serving(tmp_path, *nodes) as extender:
            loop = SchedulerLoop(extender.api, extender.session, extender.url)
            pods = [await extender.create(f"p{number}", 1) for number in range(24)]
            for pod in pods:
                await loop.schedule(pod)
    roots = [
        sorted(span.name for span in collector.of(trace_id(pod["metadata"]["uid"])) if not span.parent) for pod in pods
    ]
    assert {tuple(names) for names in roots} == {(), ("bind", "filter", "prioritize")}


@pytest.mark.slow
async def test_the_standard_variables_switch_the_real_program(tmp_path: Path) -> None:
    """Service and resource are named by them as well; and what is left is sent before the program ends."""
    port, store = free_port(), ObjectStore()
    with collecting() as collector:
        async with ApiServer(store) as server, ApiClient(server.url) as api, aiohttp.ClientSession() as session:
            write_kubeconfig(tmp_path / "kubeconfig", server.url)
            await join(api, NODES)
            variables = {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces",
                "OTEL_SERVICE_NAME": "ours",
            }
            flags = ["--set", f"kubernetes.kubeconfig={tmp_path}/kubeconfig", "--set", f"listen.port={port}"]
            command = [sys.executable, "-m", "extender", *flags]
            with (tmp_path / "log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **variables}, stderr=log)
            try:

                async def is_ready() -> bool:
                    try:
                        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                            return answer.status == 200
                    except aiohttp.ClientError:
                        return False

                await eventually(is_ready, 60.0)
                pod = (await api.call("POST", "/api/v1/namespaces/default/pods", gpu_pod("train", 4))).ok()
                assert isinstance(await SchedulerLoop(api, session, f"http://127.0.0.1:{port}").schedule(pod), BoundPod)
                process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(process.wait(), 60) == 0
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    spans = collector.of(trace_id(pod["metadata"]["uid"]))
    assert {span.name for span in spans if not span.parent} == {"filter", "prioritize", "bind"}
    assert {span.service for span in collector.spans} == {"ours"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "ours"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_an_endpoint_nothing_is_traced(environment: dict[str, str]) -> None:
    """Nor a request to the API server."""
    with started(environment) as traces:
        assert traces is None
        with request("GET", "/api/v1/nodes") as answered:
            answered(200)


def test_a_request_that_is_for_no_pod_is_in_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, events and whatever else goes on beside."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        with started(os.environ), request("GET", "/api/v1/nodes") as answered:
            answered(200)
        assert collector.spans == []


@pytest.mark.slow
def test_off_imports_nothing_of_the_sdk() -> None:
    """So that it costs neither time at the start nor memory; the API comes with FastAPI."""
    asked = "import sys, extender.web.command, extender.web.server; print([n for n in sys.modules if 'opentelemetry.sdk' in n])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_libraries_the_extender_runs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual image has none."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with started({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}) as traces:
        assert traces is None
