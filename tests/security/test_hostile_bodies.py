"""I1–I3 over HTTP: whatever a body says, the answer is clear and soon, the extender goes on, and its log keeps its lines."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import aiohttp
import pytest

from benchmarks.simulated.fleet import SimulatedNode, gpu_pod
from tests.extender.serving import serving
from tests.security.target import target
from topology.annotations import keys

NODE = SimulatedNode("n1", "dgx-a100")
NO_NUMBERS = ["-1", "1.5", "1e9", str(10**30), "1k", "1_000", "٣", " 1", "nan", "", "0x1", "9" * 5000]
MALFORMED = {
    "nothing": b"",
    "no JSON": b"\0" * 1000,
    "not UTF-8": b'{"Pod":{"metadata":{"uid":"\xff"}},"NodeNames":["n1"]}',
    "NaN": b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":NaN}',
    "200,000 brackets": b"[" * 200_000,
    "100,000 braces": b'{"Pod":' * 100_000,
    "200,000 brackets where nobody looks": b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":["n1"],"X":' + b"[" * 200_000,
    "a list of everything": json.dumps({"Pod": [], "NodeNames": [[]], "PodName": 1, "Node": {}}).encode(),
}
LETTERS = 'aé\n\r\t\0\x1b[31m\x7f\u2028\u202e\u200b\ud83d\ude00\\"{}'
HOSTILE_NAMES = 500


def body(pod: dict[str, object]) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": [NODE.name]}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("quantity", NO_NUMBERS, ids=lambda quantity: quantity[:8] or "empty")
async def test_i1_what_is_no_number_of_gpus_is_refused_soon(
    tmp_path: Path, quantity: str, goal: Callable[[float], float], figure: Callable[[str], None]
) -> None:
    """With a reason, within 5 ms of the processor's time, client and API double included, and no node passes."""
    async with serving(tmp_path, NODE) as extender:
        pod = gpu_pod("p", 1)
        pod["metadata"]["uid"] = "u"
        pod["spec"]["containers"][0]["resources"]["limits"] = {keys.GPU_RESOURCE: quantity}
        status, answer = await extender.post("filter", body(pod))
        seconds = [await cpu_seconds(extender.post("filter", body(pod))) for _ in range(30)]
    assert (status, answer["NodeNames"]) == (200, [])
    assert "which is not a whole number of GPUs" in answer["FailedAndUnresolvableNodes"][NODE.name]
    figure(
        f"I1: {quantity[:8] or 'nothing'!r} refused in {1000 * median(seconds):.1f} ms of CPU (median of {len(seconds)})"
    )
    assert median(seconds) <= goal(0.005)


async def cpu_seconds(call: Awaitable[object]) -> float:
    began = time.process_time()
    await call
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
async def test_i2_malformed_bodies_are_400(tmp_path: Path, verb: str) -> None:
    """Each of them, with a reason, and the connection after it works."""
    async with serving(tmp_path, NODE) as extender:
        for name, content in MALFORMED.items():
            status, answer = await extender.post(verb, content[:60_000] if verb == "bind" else content)
            assert (status, bool(answer["error"])) == (400, True), name
        assert (await extender.get("/livez"))[0] == 200


@pytest.mark.slow
async def test_i3_hostile_names_stay_on_one_line(tmp_path: Path) -> None:
    """Every call is one line of the log, which is JSON, and holds no character that acts on a terminal."""
    chance = random.Random(20_260_101)
    async with target(tmp_path, NODE) as attacked, aiohttp.ClientSession() as session:
        for number in range(HOSTILE_NAMES):
            name = "".join(chance.choices(LETTERS, k=chance.randrange(1, 400))).encode("utf-16", "surrogatepass")
            pod = gpu_pod(name.decode("utf-16", "replace"), 1)
            pod["metadata"] |= {"uid": f"u{number}", "namespace": "\n{\x1b"}
            async with session.post(f"{attacked.url}/v1/extender/filter", data=body(pod)) as answer:
                assert answer.status == 200
        lines = attacked.log.splitlines(keepends=True)
    calls = [line for line in lines if json.loads(line).get("verb") == "filter"]
    assert len(calls) == HOSTILE_NAMES
    assert all(line.removesuffix("\n").isprintable() for line in lines)
