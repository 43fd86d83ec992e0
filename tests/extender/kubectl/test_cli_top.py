"""`kubectl gputopo top` shows what GPUs do and who holds them, as the agents' metrics tell it through the API server."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, join
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.rest import Request
from tests.extender.plugin import invoke

N1 = SimulatedNode("n1", "t4-4", used=(0, 1))
GPUS = [gpu.uuid for gpu in N1.topology.gpus]
AGENTS = {"n1": "agent-1", "n2": "agent-2"}


def exposition(*used: float) -> bytes:
    """Return what an agent tells of GPUs that are so busy, with 2 of 16 GiB in use."""
    series = {"utilization_ratio": used, "memory_used_bytes": [2 << 30] * 4, "memory_total_bytes": [16 << 30] * 4}
    lines = [
        f'gputopo_gpu_{name}{{uuid="{uuid}"}} {value}'
        for name, values in series.items()
        for uuid, value in zip(GPUS, values, strict=False)
    ]
    return "\n".join([*lines, 'gputopo_gpu_health{uuid="x",state="healthy"} 1', ""]).encode()


async def asked(tmp_path: Path, metrics: Mapping[str, tuple[int, bytes]], *words: str) -> Result:
    """Ask in a cluster of two nodes; `metrics` is what the API server fetches from the agents' pods."""
    really = KubeApi.send

    async def send(api: KubeApi, request: Request) -> tuple[int, bytes]:
        if request.path.endswith("/proxy/metrics"):
            return metrics[request.path.split("/")[6]]
        if "labelSelector" in request.path:
            listed = [
                {"metadata": {"name": pod, "namespace": "g"}, "spec": {"nodeName": node}}
                for node, pod in AGENTS.items()
                if "fieldSelector" not in request.path or node in request.path
            ]
            return 200, json.dumps({"items": listed}).encode()
        return await really(api, request)

    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [N1, SimulatedNode("n2", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KubeApi, "send", send)
            verb = () if words[:1] == ("snapshot",) else ("top",)
            return await asyncio.to_thread(invoke, *verb, *words, "--kubeconfig", str(tmp_path / "kubeconfig"))


BOTH = {"agent-1": (200, exposition(0.02, 0.97, 0.0, 0.0)), "agent-2": (503, b'{"message": "no route to host"}')}


async def test_use_stands_beside_the_holder(tmp_path: Path) -> None:
    """A GPU that is not told of has an empty cell; a node of which nothing was heard is named with the reason."""
    result = await asked(tmp_path, BOTH)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["NODE", "GPU", "STATE", "POD", "USE", "MEMORY-GIB", "POWER", "TEMP"]
    assert rows[1][:3] == ["n1", "0", "claimed"]
    assert rows[1][4:] == ["2%", "2/16", "<none>", "<none>"]
    assert rows[3] == ["n1", "2", "free", "<none>", "0%", "2/16", "<none>", "<none>"]
    assert rows[5] == ["n2", "0", "free", *["<none>"] * 5]
    assert result.stderr == "n2: 503: no route to host\n"


async def test_idle_gpus_are_those_that_somebody_holds_and_does_not_use(tmp_path: Path) -> None:
    """Neither the busy one nor those that are free."""
    result = await asked(tmp_path, BOTH, "--idle", "-o", "json")
    assert [(gpu["node"], gpu["index"]) for gpu in json.loads(result.stdout)["gpus"]] == [("n1", 0)]


@pytest.mark.slow
async def test_one_node_is_asked_alone(tmp_path: Path) -> None:
    """The agent of the other one is not."""
    result = await asked(tmp_path, {"agent-1": BOTH["agent-1"]}, "n1", "-o", "name")
    assert (result.exit_code, result.stdout.split()) == (0, GPUS)
    missing = await asked(tmp_path, {}, "n3")
    assert (missing.exit_code, missing.stderr) == (1, "no node n3\n")


@pytest.mark.slow
async def test_where_no_agent_tells_the_answer_is_no(tmp_path: Path) -> None:
    """Exit code 1, with every node's reason; an exposition that nobody can read tells nothing."""
    refused = {"agent-1": (403, b'{"message": "pods/proxy is forbidden"}'), "agent-2": (500, b"{")}
    result = await asked(tmp_path, refused)
    assert result.exit_code == 1
    assert "n1: 403: pods/proxy is forbidden" in result.stderr
    broken = await asked(tmp_path, {"agent-1": (200, b"gputopo_gpu_x{"), "agent-2": (200, b"\xff")})
    assert broken.exit_code == 0
    assert [line.split()[4] for line in broken.stdout.splitlines()[1:]] == ["<none>"] * 8


@pytest.mark.slow
async def test_a_snapshot_with_what_gpus_do_answers_as_the_cluster_did(tmp_path: Path) -> None:
    """But for why an agent told nothing: these are words of others, and may hold what is secret."""
    file = str(tmp_path / "kept")
    assert (await asked(tmp_path, BOTH, "snapshot", file, "--use")).exit_code == 0
    live = await asked(tmp_path, BOTH)
    kept = await asyncio.to_thread(invoke, "top", "--snapshot", file)
    assert (kept.exit_code, kept.stdout) == (live.exit_code, live.stdout)
    assert kept.stderr == "n2: its agent told nothing when the snapshot was taken\n"
    assert b"route" not in gzip.decompress(await asyncio.to_thread(Path(file).read_bytes))
    one = await asyncio.to_thread(invoke, "top", "n2", "-o", "name", "--snapshot", file)
    assert len(one.stdout.split()) == 4


async def test_a_snapshot_without_it_says_how_to_get_one(tmp_path: Path) -> None:
    """Also where an environment variable names it; and what was measured is in no snapshot."""
    file = str(tmp_path / "kept")
    assert (await asked(tmp_path, BOTH, "snapshot", file)).exit_code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUTOPO_SNAPSHOT", file)
        use, measured = [await asyncio.to_thread(invoke, verb) for verb in ("top", "measured")]
    assert (use.exit_code, use.stdout, measured.exit_code, measured.stdout) == (2, "", 2, "")
    assert f"{file} does not hold what GPUs do: `kubectl gputopo snapshot --use` writes one" in use.stderr
    assert f"{file} does not hold what was measured" in measured.stderr
