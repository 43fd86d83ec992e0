"""The kubectl plugin answers from the annotations alone, in kubectl's manner, with exit codes that scripts can use."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.client import ApiClient
from benchmarks.double.server import ApiServer, write_kubeconfig
from benchmarks.double.store import Store
from benchmarks.fleet import SimulatedNode, gpu_pod, join
from extender.cli import app
from topology import keys

PODS = "/api/v1/namespaces/default/pods"


async def plugin(tmp_path: Path, *arguments: str) -> Result:
    """Run the plugin against a small cluster."""
    nodes = [SimulatedNode("n1", "dgx-a100", used=(0, 1)), SimulatedNode("n2", "t4-4")]
    async with ApiServer(Store()) as server, ApiClient(server.url) as api:
        await join(api, nodes)
        for name, gpus in (("waits", 4), ("huge", 16)):
            (await api.call("POST", PODS, gpu_pod(name, gpus, {keys.REQUIRED_AFFINITY: "nvlink"}))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        return await asyncio.to_thread(invoke, *arguments, "--kubeconfig", str(tmp_path / "kubeconfig"))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


async def test_nodes_are_listed_in_columns(tmp_path: Path) -> None:
    """Upper-case heads, left aligned, `<none>` for nothing, and no colour to switch off."""
    result = await plugin(tmp_path, "nodes")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "NAME   MACHINE                     GPUS   FREE   NOTE",
        "n1     8 x NVIDIA A100-SXM4-40GB   8      6      <none>",
        "n2     4 x Tesla T4                4      4      <none>",
    ]


async def test_a_node_is_shown_with_matrix_owners_and_worth(tmp_path: Path) -> None:
    """What nvidia-smi would say, who has what, and what is left."""
    result = await plugin(tmp_path, "node", "n1")
    assert result.exit_code == 0
    assert "GPU0   X      NV12" in result.stdout
    assert "0     claimed   default/n1-occupant   main" in result.stdout
    assert "4         2,3,4,5" in result.stdout


async def test_a_placed_pod_is_a_yes(tmp_path: Path) -> None:
    """It says where, which and how fast."""
    result = await plugin(tmp_path, "pod", "n1-occupant")
    assert result.exit_code == 0
    assert result.stdout.startswith("default/n1-occupant: on n1")


async def test_a_pod_that_could_go_somewhere_is_a_yes(tmp_path: Path) -> None:
    """With the reasons against the other nodes."""
    result = await plugin(tmp_path, "pod", "waits", "-n", "default")
    assert result.exit_code == 0
    assert "default/waits: waits" in result.stdout
    assert "1       no two free GPUs share an NVLink ring, pod needs 4   n2" in result.stdout


@pytest.mark.parametrize("arguments", [("pod", "huge"), ("pod", "absent"), ("node", "absent")])
async def test_a_clear_no_is_1(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """It fits nowhere, or is not there."""
    assert (await plugin(tmp_path, *arguments)).exit_code == 1


async def test_json_is_one_document_and_nothing_else(tmp_path: Path) -> None:
    """For every command."""
    for arguments in (("nodes",), ("node", "n1"), ("pod", "waits")):
        document = json.loads((await plugin(tmp_path, *arguments, "-o", "json")).stdout)
        assert document.keys() >= {"nodes": {"nodes"}, "node": {"matrix"}, "pod": {"fits", "refusals"}}[arguments[0]]


@pytest.mark.parametrize(
    "arguments", [("nodes", "--kubeconfig", "/nowhere/at/all"), ("node",), ("frobnicate",), ("nodes", "-o", "xml")]
)
def test_wrong_usage_and_no_cluster_are_2(arguments: tuple[str, ...]) -> None:
    """The reason is on standard error."""
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
