"""The extender over real sockets: the three verbs end to end, health, limits, and a clean start and stop."""

from __future__ import annotations

import asyncio
import gc
import io
from pathlib import Path

import pytest

from benchmarks.processes.client import MERGE_PATCH
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.fleet import SimulatedNode, fleet, join
from benchmarks.simulated.scheduler_loop import BoundPod, SchedulerLoop, Unschedulable
from extender.kit import collector
from tests.extender.polling import eventually, until
from tests.extender.serving import Running, serving
from topology.annotations import keys
from topology.annotations.records import decode_ledger
from topology.node.links import Affinity

PAIRED = SimulatedNode("n1", "a100-pcie-8-pairs", used=(0, 2, 4, 6))
"""Four free GPUs, no two of them joined."""
WHOLE = SimulatedNode("n2", "dgx-a100", used=(0, 1, 2, 3))
"""Four free GPUs on one NVSwitch."""


async def ledger_of(extender: Running, node: str) -> dict[str, str]:
    """Return GPU → pod as the node's ledger says."""
    found = (await extender.api.call("GET", f"/api/v1/nodes/{node}")).ok()
    text = found["metadata"]["annotations"].get(keys.LEDGER)
    return {claim.gpu: claim.name for claim in decode_ledger(text).claims} if text else {}


@pytest.mark.slow
async def test_a_pod_goes_where_its_gpus_are_joined_and_gets_exactly_those(tmp_path: Path) -> None:
    """Filter → prioritize → bind: node, ledger and placement record agree."""
    async with serving(tmp_path, PAIRED, WHOLE) as extender:
        pod = await extender.create("train", 4, {keys.REQUIRED_AFFINITY: "nvlink"})
        bound = await SchedulerLoop(extender.api, extender.session, extender.url).schedule(pod)
        assert isinstance(bound, BoundPod)
        assert (bound.node, bound.record.affinity) == ("n2", Affinity.NVLINK)
        claimed = {gpu for gpu, name in (await ledger_of(extender, "n2")).items() if name == "train"}
        assert claimed == set(bound.record.containers["main"])


@pytest.mark.slow
async def test_a_pod_that_fits_nowhere_hears_why(tmp_path: Path) -> None:
    """The scheduler gets a reason per node, the pod an event."""
    async with serving(tmp_path, PAIRED) as extender:
        pod = await extender.create("train", 4, {keys.REQUIRED_AFFINITY: "nvlink"})
        outcome = await SchedulerLoop(extender.api, extender.session, extender.url).schedule(pod)
        assert isinstance(outcome, Unschedulable)
        assert "1 no 4 free GPUs share an NVLink ring (wait or let it relax)" in outcome.message
        assert await event_reasons(extender) == ["GPUTopologyUnsatisfied"]


@pytest.mark.slow
async def test_garbage_is_looked_for_again_once_all_is_listed(tmp_path: Path) -> None:
    """It is looked for seldom only until then."""
    collector.put_off()
    seldom, *_ = gc.get_threshold()
    async with serving(tmp_path, WHOLE):
        await until(lambda: gc.get_threshold()[0] < seldom)


async def event_reasons(extender: Running) -> list[str]:
    """Return the reasons of all events, once there are any."""

    async def found() -> list[str]:
        events = (await extender.api.call("GET", "/api/v1/namespaces/default/events")).ok()["items"]
        return [event["reason"] for event in events]

    return await eventually(found)


@pytest.mark.slow
async def test_a_placement_is_told_once(tmp_path: Path) -> None:
    """Binding again is idempotent, and no news."""
    async with serving(tmp_path, WHOLE) as extender:
        pod = (await extender.create("train", 2))["metadata"]
        body = {"PodName": "train", "PodNamespace": "default", "PodUID": pod["uid"], "Node": "n2"}
        assert [await extender.post("bind", body) for _ in range(3)] == [(200, {"Error": ""})] * 3
        assert await event_reasons(extender) == ["GPUTopologyPlaced"]
        assert len([name for name in (await ledger_of(extender, "n2")).values() if name == "train"]) == 2


@pytest.mark.slow
async def test_ten_binds_of_one_pod_at_once_make_one_placement(tmp_path: Path) -> None:
    """Callers that time out and try again overlap."""
    async with serving(tmp_path, WHOLE) as extender:
        pod = (await extender.create("train", 2))["metadata"]
        body = {"PodName": "train", "PodNamespace": "default", "PodUID": pod["uid"], "Node": "n2"}
        answers = await asyncio.gather(*(extender.post("bind", body) for _ in range(10)))
        assert all(answer == (200, {"Error": ""}) for answer in answers)
        assert len([name for name in (await ledger_of(extender, "n2")).values() if name == "train"]) == 2


@pytest.mark.slow
async def test_many_pods_at_once_never_share_a_gpu(tmp_path: Path) -> None:
    """Binds to one node take turns; all of them succeed."""
    async with serving(tmp_path, SimulatedNode("n1", "dgx-2")) as extender:
        pods = [(await extender.create(f"p{number}", 2))["metadata"] for number in range(8)]
        bodies = [
            {"PodName": pod["name"], "PodNamespace": "default", "PodUID": pod["uid"], "Node": "n1"} for pod in pods
        ]
        answers = await asyncio.gather(*(extender.post("bind", body) for body in bodies))
        assert answers == [(200, {"Error": ""})] * 8
        assert len(await ledger_of(extender, "n1")) == 16


@pytest.mark.slow
async def test_gpus_of_a_deleted_pod_leave_the_ledger(tmp_path: Path) -> None:
    """The background task writes it down, which wakes pods that wait."""
    async with serving(tmp_path, WHOLE) as extender:
        pod = await extender.create("train", 4)
        await SchedulerLoop(extender.api, extender.session, extender.url).schedule(pod)
        path = "/api/v1/namespaces/default/pods/train"
        ended = {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": {"terminated": {}}}]}
        await extender.api.call("PATCH", f"{path}/status", {"status": ended}, content_type=MERGE_PATCH)
        await extender.api.call("DELETE", path, {"gracePeriodSeconds": 0})

        async def released() -> bool:
            return "train" not in (await ledger_of(extender, "n2")).values()

        assert await eventually(released)


@pytest.mark.slow
async def test_no_such_pod_is_an_error_in_words(tmp_path: Path) -> None:
    """A domain answer is a 200."""
    async with serving(tmp_path, WHOLE) as extender:
        body = {"PodName": "x", "PodNamespace": "default", "PodUID": "u", "Node": "n2"}
        assert await extender.post("bind", body) == (200, {"Error": "pod is gone"})


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_a_malformed_body_is_400_with_a_reason(tmp_path: Path, verb: str) -> None:
    """The caller is broken, not the pod."""
    async with serving(tmp_path) as extender:
        status, answer = await extender.post(verb, b'{"Pod":7,"PodName":7}')
        assert status == 400
        assert "Expected `" in answer["error"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_a_browser_may_not_call_the_verbs(tmp_path: Path, verb: str) -> None:
    """A page can post to a forwarded port, and cannot hide where it comes from."""
    async with serving(tmp_path) as extender:
        url, headers = f"{extender.url}/v1/extender/{verb}", {"Origin": "https://example.com"}
        async with extender.session.post(url, data="{}", headers=headers) as response:
            assert response.status == 403


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_verbs_answer_post_alone(tmp_path: Path, verb: str) -> None:
    """Every other method is 405, the question of a browser before it sends a POST included."""
    async with serving(tmp_path) as extender:
        for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
            async with extender.session.request(method, f"{extender.url}/v1/extender/{verb}") as response:
                assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.slow
async def test_answers_have_a_length_and_keep_the_connection(tmp_path: Path) -> None:
    """Chunked answers cost kube-scheduler its connection."""
    async with serving(tmp_path, WHOLE) as extender:
        pod = await extender.create("train", 1)
        body = {"Pod": pod, "Nodes": None, "NodeNames": ["n2"]}
        async with extender.session.post(f"{extender.url}/v1/extender/filter", json=body) as response:
            content = await response.read()
        assert response.headers["Content-Length"] == str(len(content))
        assert response.headers.get("Connection", "keep-alive") == "keep-alive"
        assert response.headers["Content-Type"] == "application/json"


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "size"), [("bind", 70_000), ("filter", 5_000_000)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_no_call_needs_is_413(tmp_path: Path, verb: str, size: int, chunked: bool) -> None:
    """With a Content-Length and without."""

    async def pieces() -> object:
        for _ in range(size // 10_000 + 1):
            yield b" " * 10_000

    async with serving(tmp_path) as extender:
        data = pieces() if chunked else io.BytesIO(b" " * size)
        async with extender.session.post(f"{extender.url}/v1/extender/{verb}", data=data) as response:
            assert response.status == 413


@pytest.mark.slow
async def test_a_request_that_does_not_arrive_in_time_is_cut_and_others_are_served(tmp_path: Path) -> None:
    """Slow headers, slow bodies and silent connections do not hold anything; idle kept connections stay."""
    async with serving(tmp_path, settings={"limits.receive": "1s"}) as extender:
        host, port = extender.url.removeprefix("http://").split(":")
        beginnings = [b"", b"POST /v1/ext", b"POST /v1/extender/bind HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
        slow = [await asyncio.open_connection(host, int(port)) for _ in beginnings]
        for (_, writer), beginning in zip(slow, beginnings, strict=True):
            writer.write(beginning)
        assert (await extender.get("/livez"))[0] == 200
        for reader, writer in slow:
            async with asyncio.timeout(30):
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
            writer.close()
        assert (await extender.get("/livez"))[0] == 200


async def test_nothing_is_decided_before_both_lists_have_arrived(tmp_path: Path) -> None:
    """Not ready is 503, never a guess; alive all the same."""
    async with serving(tmp_path, settings={"kubernetes.kubeconfig": str(dead(tmp_path))}, ready=False) as extender:
        assert (await extender.post("filter", b"{}"))[0] == 503
        assert (await extender.get("/livez"))[0] == 200
        status, text = await extender.get("/readyz")
        assert status == 503
        assert "[-]nodes-watch failed: not listed yet" in text


def dead(folder: Path) -> Path:
    """Write a kubeconfig for a server that nobody runs."""
    write_kubeconfig(folder / "dead", "http://127.0.0.1:9")
    return folder / "dead"


@pytest.mark.slow
async def test_probes_and_metrics_have_a_port_of_their_own(tmp_path: Path) -> None:
    """They may be reached from outside; the verbs may not."""
    async with serving(tmp_path, *fleet({"dgx-a100": 3})) as extender:
        assert await extender.get("/readyz", extender.health_url) == (200, "ok")
        status, text = await extender.get("/metrics", extender.health_url)
        assert status == 200
        assert "gputopo_gpus 24.0" in text
        assert 'gputopo_build_info{config="' in text
        assert (await extender.get("/v1/extender/filter", extender.health_url))[0] == 404


def counted(text: str) -> set[str]:
    """Return which counters with labels a page of metrics has."""
    return {line.partition(" ")[0] for line in text.splitlines() if "_total{" in line}


async def news(extender: Running, before: str) -> str:
    """Return the page of metrics if it is another one than before, which it is after a second."""
    _, text = await extender.get("/metrics")
    return text if text != before else ""


@pytest.mark.slow
async def test_verdicts_are_counted(tmp_path: Path) -> None:
    """By verb and by what was said, in series that were there before."""
    async with serving(tmp_path, WHOLE) as extender:
        _, before = await extender.get("/metrics")
        pod = await extender.create("train", 4)
        await SchedulerLoop(extender.api, extender.session, extender.url).schedule(pod)
        text = await eventually(lambda: news(extender, before))
        assert 'gputopo_verdicts_total{reason="fits",verb="filter"} 1.0' in text
        assert 'gputopo_verdicts_total{reason="bound",verb="bind"} 1.0' in text
        assert 'gputopo_api_requests_total{intent="SwapLedger",reply="Done"} 1.0' in text
        assert counted(text) == counted(before)


@pytest.mark.slow
async def test_new_nodes_are_seen_without_a_restart(tmp_path: Path) -> None:
    """The watch brings them."""
    async with serving(tmp_path) as extender:
        await join(extender.api, [WHOLE])

        async def seen() -> bool:
            return "gputopo_nodes 1.0" in (await extender.get("/metrics"))[1]

        assert await eventually(seen)


async def test_a_vital_round_that_fails_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an extender must not go on answering; nothing outside can cause this, so the test does."""

    async def die(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("extender.core.core_rounds.keep_derived", die)
    with pytest.raises(ExceptionGroup) as caught:
        async with serving(tmp_path, ready=False) as extender:
            await until(extender.process.done)
    assert caught.group_contains(RuntimeError, match="a bug")
