"""Shell completion, as kubectl asks a plugin for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.kubectl import completion
from extender.kubectl.completion import FILES, NO_FILES, complete
from tests.extender.plugin import PODS


@pytest.mark.parametrize(
    ("words", "found", "directive"),
    [
        (["wh"], ["what-if", "why"], NO_FILES),
        (["nodes", "-o", ""], ["json", "name", "table", "wide", "yaml"], NO_FILES),
        (["nodes", "--no"], ["--no-headers"], NO_FILES),
        (["what-if", "-f", ""], [], FILES),
        (["what-if", "--gpu-m"], ["--gpu-memory-gib", "--gpu-model"], NO_FILES),
        (["nodes", ""], [], NO_FILES),
        (["frobnicate", ""], [], NO_FILES),
    ],
)
def test_verbs_options_and_their_values_are_offered(words: list[str], found: list[str], directive: int) -> None:
    """Each with its meaning after a tab, where it has one."""
    offered, said = complete(words)
    assert ([line.split("\t")[0] for line in offered], said) == (found, directive)


@pytest.mark.slow
async def test_names_come_from_the_cluster(tmp_path: Path) -> None:
    """Nodes with GPUs, and the pods of the namespace; one name is enough."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4"), SimulatedNode("m1", "t4-4")])
        (await api.call("POST", PODS, gpu_pod("train", 1, {}))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        here = ["--kubeconfig", str(tmp_path / "kubeconfig")]
        offered = [
            await asyncio.to_thread(complete, words)
            for words in (
                ["node", *here, "n"],
                ["cordon-gpu", *here, "m"],
                ["why", *here, "-n", "default", ""],
                ["why", "train", *here, ""],
            )
        ]
    assert [names for names, _ in offered] == [["n1"], ["m1"], ["train"], []]


def test_a_name_with_characters_that_act_on_a_terminal_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell would type it for the user."""
    monkeypatch.setattr(completion, "_names", lambda words: ["n1", "n2\x1b[31m", "n3\n"])
    assert complete(["node", ""]) == (["n1"], NO_FILES)


@pytest.mark.slow
def test_where_no_cluster_answers_nothing_is_said(tmp_path: Path) -> None:
    """As cobra writes it: a line with the directive ends it."""
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    words = ["pod", "--kubeconfig", str(tmp_path / "kubeconfig"), ""]
    asked = [sys.executable, "-c", "from extender.kubectl.completion import main; main()", *words]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (":4\n", "")
