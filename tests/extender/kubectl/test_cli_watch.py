"""`kubectl gputopo nodes -w` goes on and prints what changes; colours are for terminals."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.processes.client import ApiClient
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from benchmarks.simulated.fleet import SimulatedNode, gpu_pod, join
from extender.cluster.caches.node_cache import NodeCache
from extender.cluster.state import ClusterState
from extender.kubectl.following import Printed, follow
from extender.kubernetes.kubeconfig import Kubeconfig
from tests.extender.plugin import PODS, invoke

PLUGIN = Path(sysconfig.get_path("scripts")) / "kubectl-gputopo"


@asynccontextmanager
async def watching(kubeconfig: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the plugin until the end of an `async with` block."""
    command = [sys.executable, str(PLUGIN), *words, "-w", "--kubeconfig", str(kubeconfig)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, preexec_fn=_hear_ctrl_c)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _hear_ctrl_c() -> None:
    """Let the plugin end by it, also where the tests run in the background, deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def line_of(process: asyncio.subprocess.Process, word: str) -> str:
    """Return the next line with a word in it."""
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while line := (await process.stdout.readline()).decode():
            if word in line:
                return " ".join(line.split())
    raise AssertionError(f"the plugin ended without {word!r}")


@pytest.mark.slow
async def test_a_watch_prints_what_changes_until_it_is_told_to_end(tmp_path: Path) -> None:
    """A node that comes, and one of which the GPUs are taken; Ctrl-C is no error."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        async with watching(tmp_path / "kubeconfig", "nodes", "--no-headers") as process:
            assert (await line_of(process, "n1")).startswith("n1 4 x Tesla T4 4 4")
            await join(api, [SimulatedNode("n2", "dgx-a100", used=(0, 1, 2))])
            assert (await line_of(process, "n2 ")).startswith("n2 8 x ")
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                rest, complaint = await process.communicate()
    assert (process.returncode, complaint) == (0, b"")
    assert b"n1" not in rest, "it has not changed"


@pytest.mark.slow
async def test_a_watched_pod_is_told_when_it_goes(tmp_path: Path) -> None:
    """Exit code 1, and the reason."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        (await api.call("POST", PODS, gpu_pod("train", 2, schedulerName="gputopo"))).ok()
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        async with watching(tmp_path / "kubeconfig", "pod", "train") as process:
            assert "waits" in await line_of(process, "default/train")
            (await api.call("DELETE", f"{PODS}/train")).ok()
            async with asyncio.timeout(60):
                _, complaint = await process.communicate()
    why = "no pod default/train asks for nvidia.com/gpu, nvidia.com/mig-… or gputopo.dev/gpu-memory-gib"
    assert (process.returncode, complaint.decode()) == (1, f"{why}\n")


async def test_a_watch_that_dies_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what nobody has thought of: else the lines would stand as if nothing changed any more."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        shown = asyncio.Event()
        config = Kubeconfig.find(tmp_path / "kubeconfig", None, {})
        following = asyncio.create_task(follow(config, ClusterState(), lambda _: shown.set()))
        async with asyncio.timeout(60):
            await shown.wait()
        monkeypatch.setattr(NodeCache, "changed", died)
        await join(api, [SimulatedNode("n2", "t4-4")])
        done, _ = await asyncio.wait([following], timeout=60)
        assert done
        with pytest.raises(LookupError):
            await following


def died(*_: object) -> None:
    raise LookupError("nobody has thought of this")


def test_only_lines_that_are_new_are_printed_again(capsys: pytest.CaptureFixture[str]) -> None:
    """As kubectl does it."""
    printed = Printed()
    for text in ("NAME\na 1\nb 2", "NAME\na 1\nb 3", "NAME\na 1\nb 3"):
        printed.print(lambda text=text: print(text))  # type: ignore[misc]
    assert capsys.readouterr().out == "NAME\na 1\nb 2\nb 3\n"


def test_a_document_that_changes_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of JSON say nothing alone."""
    printed = Printed(is_document=True)
    for text in ('{\n"a": 1}', '{\n"a": 1}', '{\n"a": 2}'):
        printed.print(lambda text=text: print(text))  # type: ignore[misc]
    assert capsys.readouterr().out == '{\n"a": 1}\n{\n"a": 2}\n'


def test_a_cluster_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    """Exit code 2, and nobody waits for it."""
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    result = invoke("nodes", "-w", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("cannot read the cluster: ")


def test_a_snapshot_is_not_watched(tmp_path: Path) -> None:
    """It does not change."""
    (tmp_path / "now").write_text('{"items": []}')
    result = invoke("nodes", "-w", "--snapshot", str(tmp_path / "now"))
    assert (result.exit_code, result.stderr) == (2, "a snapshot does not change: -w is for a cluster\n")


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "is_coloured"), [("", True), ("NO_COLOR", False)])
async def test_colours_are_for_terminals_and_for_those_who_want_them(
    tmp_path: Path, variable: str, is_coloured: bool
) -> None:
    """A free GPU is green there; the same words without colours go everywhere else."""
    async with ApiServer(ObjectStore()) as server, ApiClient(server.url) as api:
        await join(api, [SimulatedNode("n1", "t4-4")])
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        command = [sys.executable, str(PLUGIN), "node", "n1", "--kubeconfig", str(tmp_path / "kubeconfig")]
        environment = {**os.environ, "TERM": "xterm"} | ({variable: "1"} if variable else {})
        environment = {name: value for name, value in environment.items() if variable or name != "NO_COLOR"}
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(*command, stdout=theirs, env=environment)
        await process.wait()
        os.close(theirs)
        shown = os.read(ours, 1 << 16).decode()
        os.close(ours)
        plain = await asyncio.to_thread(invoke, *command[2:])
    assert ("\x1b[32mfree" in shown) is is_coloured
    assert "\x1b" not in plain.stdout
    assert "free" in plain.stdout
