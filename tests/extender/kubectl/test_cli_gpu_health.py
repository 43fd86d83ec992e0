"""`kubectl gputopo cordon-gpu`, `uncordon-gpu` and `clear-gpu` write what people say of a node's GPUs, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import Result

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, join
from tests.extender.plugin import invoke
from tests.extender.polling import until
from topology.annotations import keys
from topology.annotations.codec import decode_topology
from topology.annotations.overrides import Override, Word, decode_overrides, encode_overrides

MERGE = "application/merge-patch+json"


@dataclass
class Cluster:
    """One node with four GPUs."""

    api: ApiClient
    kubeconfig: Path

    async def run(self, *arguments: str) -> Result:
        return await asyncio.to_thread(invoke, *arguments, "--kubeconfig", str(self.kubeconfig))

    async def annotations(self) -> dict[str, str]:
        found = (await self.api.call("GET", "/api/v1/nodes/n1")).ok()
        annotations: dict[str, str] = found["metadata"]["annotations"]
        return annotations

    async def said(self) -> dict[str, Override]:
        """Return what is said of the GPUs, by their index."""
        found = await self.annotations()
        names = {gpu.uuid: str(gpu.index) for gpu in decode_topology(found[keys.TOPOLOGY]).gpus}
        text = found.get(keys.GPU_HEALTH)
        return {names[uuid]: override for uuid, override in decode_overrides(text).items()} if text else {}


@asynccontextmanager
async def one_node(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Have a node whose agent has reported."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        yield Cluster(api, tmp_path / "kubeconfig")


@pytest.mark.slow
async def test_gpus_are_cordoned_and_let_in_again_one_by_one(tmp_path: Path) -> None:
    """With who and why; what is said of others stays, and the annotation goes with the last word."""
    async with one_node(tmp_path) as cluster:
        before = await cluster.annotations()
        result = await cluster.run("cordon-gpu", "n1", "1", "3", "--why", "fan is loud")
        assert result.exit_code == 0, result.stderr
        said = await cluster.said()
        assert {index: (each.word, each.why) for index, each in said.items()} == dict.fromkeys(
            "13", (Word.CORDONED, "fan is loud")
        )
        assert all(each.by for each in said.values())
        assert (await cluster.run("uncordon-gpu", "n1", "1")).exit_code == 0
        assert [*await cluster.said()] == ["3"]
        assert (await cluster.run("uncordon-gpu", "n1", "3")).exit_code == 0
        assert await cluster.annotations() == before


@pytest.mark.slow
async def test_the_same_word_said_again_is_another_one(tmp_path: Path) -> None:
    """Or a GPU that failed twice could be cleared once only."""
    async with one_node(tmp_path) as cluster:
        await cluster.run("clear-gpu", "n1", "0")
        first = (await cluster.said())["0"]
        moment = first.at
        assert moment is not None
        await until(lambda: time.time() >= moment + 1)  # moments are whole seconds
        await cluster.run("clear-gpu", "n1", "0")
        second = (await cluster.said())["0"]
    assert first.word is second.word is Word.HEALTHY
    assert first != second


GONE = "GPU-11111111-2222-3333-4444-555555555555"
CORDON_OF_GONE = encode_overrides({GONE: Override(Word.CORDONED)})


@pytest.mark.parametrize("topology", ["here", "gone"])
async def test_the_cordon_of_a_replaced_gpu_can_be_taken_back(tmp_path: Path, topology: str) -> None:
    """By its UUID, as the node has no such GPU any more, or says nothing of its GPUs."""
    async with one_node(tmp_path) as cluster:
        before = await cluster.annotations()
        if topology == "gone":
            del before[keys.TOPOLOGY]
        changes = {keys.GPU_HEALTH: CORDON_OF_GONE} | ({keys.TOPOLOGY: None} if topology == "gone" else {})
        body = {"metadata": {"annotations": changes}}
        (await cluster.api.call("PATCH", "/api/v1/nodes/n1", body, content_type=MERGE)).ok()
        result = await cluster.run("uncordon-gpu", "n1", GONE)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
        assert await cluster.annotations() == before


async def test_a_gpu_that_the_node_has_lost_is_named_where_another_one_is_missed(tmp_path: Path) -> None:
    """Its UUID stands nowhere else; and it takes no new words."""
    async with one_node(tmp_path) as cluster:
        body = {"metadata": {"annotations": {keys.GPU_HEALTH: CORDON_OF_GONE}}}
        (await cluster.api.call("PATCH", "/api/v1/nodes/n1", body, content_type=MERGE)).ok()
        missed = await cluster.run("uncordon-gpu", "n1", "7")
        cordoned = await cluster.run("cordon-gpu", "n1", GONE)
        assert (await cluster.annotations())[keys.GPU_HEALTH] == CORDON_OF_GONE
    assert missed.stderr == f"node n1 has no GPU 7; it has 0, 1, 2, 3; {keys.GPU_HEALTH} also names {GONE}\n"
    assert cordoned.stderr == f"node n1 has no GPU {GONE}; it has 0, 1, 2, 3\n"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("n1", "7"), 2, "node n1 has no GPU 7; it has 0, 1, 2, 3\n"),
        (("n2", "0"), 1, "no node n2\n"),
    ],
)
async def test_what_is_not_there_is_refused(tmp_path: Path, arguments: tuple[str, ...], code: int, reason: str) -> None:
    """By its name, and nothing is written; a node that is not there is a clear no, as for the verbs that read."""
    async with one_node(tmp_path) as cluster:
        before = await cluster.annotations()
        result = await cluster.run("cordon-gpu", *arguments)
        assert (result.exit_code, result.stderr) == (code, reason)
        assert await cluster.annotations() == before


async def test_words_that_cannot_be_read_are_not_written_over(tmp_path: Path) -> None:
    """Somebody else has said something there."""
    async with one_node(tmp_path) as cluster:
        body = {"metadata": {"annotations": {keys.GPU_HEALTH: "{"}}}
        (await cluster.api.call("PATCH", "/api/v1/nodes/n1", body, content_type=MERGE)).ok()
        result = await cluster.run("cordon-gpu", "n1", "0")
        assert result.exit_code == 2
        assert "gpu-health cannot be read" in result.stderr
        assert (await cluster.annotations())[keys.GPU_HEALTH] == "{"
