"""Programs that measurements start: ready when the context opens, gone when it closes, whatever happens between."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
import pytest

from benchmarks.processes.process import NotReady, free_port, running


def serving(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/"


def is_there(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


async def status_of(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status


async def test_is_ready_inside_and_gone_outside(tmp_path: Path) -> None:
    """The program answers as soon as the context is entered, and has no process any more when it is left."""
    port = free_port()
    async with running("server", serving(port), tmp_path, url_of(port)) as program:
        assert await status_of(url_of(port)) == 200
    assert not is_there(program.pid)


@pytest.mark.slow
async def test_no_two_processes_are_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while nobody listens there: a server that starts again would find another one in its place."""
    say = "from benchmarks.processes.process import free_port; print(free_port(), flush=True); input()"
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", say, stdin=pipe, stdout=pipe)
    assert other.stdout is not None
    theirs, ours = int(await other.stdout.readline()), free_port()
    monkeypatch.setattr("benchmarks.processes.process._ports_given_out", set())
    monkeypatch.setattr("benchmarks.processes.process._PORTS", [*[theirs] * 99, ours])
    assert free_port() == ours
    await other.communicate(b"\n")


async def test_is_gone_when_what_comes_next_fails(tmp_path: Path) -> None:
    """A second program that does not start takes the first one with it."""
    port = free_port()
    first = running("first", serving(port), tmp_path, url_of(port))
    second = running("second", ["false"], tmp_path, url_of(free_port()))
    with pytest.raises(NotReady, match="second"):
        async with first as process, second:
            pass
    assert not is_there(process.pid)


async def test_says_why_a_program_did_not_start(tmp_path: Path) -> None:
    """The error has its name, its exit code and what it printed last."""
    command = [sys.executable, "-c", "print('no such disk'); raise SystemExit(3)"]
    with pytest.raises(NotReady, match=r"(?s)storage.*exit code 3.*no such disk"):
        async with running("storage", command, tmp_path, url_of(free_port())):
            pass
