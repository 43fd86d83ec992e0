"""The command starts a process that stops when told to, and says what is wrong when it cannot start."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.double.server import ApiServer
from benchmarks.simulated.double.store import ObjectStore
from extender.web.command import app
from tests.extender.polling import eventually
from tests.invoking import call, run

COMMAND = (sys.executable, "-m", "extender")


def test_prints_the_configuration_in_force(tmp_path: Path) -> None:
    """As a file that can be used; flags are in it."""
    file = tmp_path / "extender.yaml"
    file.write_text("apiVersion: config.gputopo.dev/v1alpha1\nkind: ExtenderConfiguration\nlisten: {port: 1}\n")
    result = call(app, "--config", str(file), "--set", "scheduling.candidates=3", "--print-config")
    printed = yaml.safe_load(result.stdout)
    assert result.returncode == 0
    assert (printed["listen"]["port"], printed["scheduling"]["candidates"]) == (1, 3)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--set", "listen.prot=1"), "listen.prot: unknown key"),
        (("--set", "listen.port"), "not KEY=VALUE"),
        (("--config", "/nowhere.yaml"), "/nowhere.yaml: No such file"),
        (("--frobnicate",), "No such option"),
    ],
)
def test_wrong_usage_is_2_with_a_reason(arguments: tuple[str, ...], complaint: str) -> None:
    """On standard error, and nothing has started."""
    result = call(app, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert complaint in result.stderr


@pytest.mark.slow
def test_what_cannot_start_is_1_and_a_line_in_the_log(tmp_path: Path) -> None:
    """No cluster to be in, and no kubeconfig that is there."""
    result = run("extender", "--set", f"kubernetes.kubeconfig={tmp_path}/absent")
    line = json.loads(result.stderr.splitlines()[-1])
    assert result.returncode == 1
    assert (line["level"], line["msg"]) == ("error", "cannot start")
    assert "no credentials" in line["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_stops_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    """With exit code 0, within seconds, and every line of its log is an object."""
    async with ApiServer(ObjectStore()) as server:
        write_kubeconfig(tmp_path / "kubeconfig", server.url)
        settings = {"kubernetes.kubeconfig": tmp_path / "kubeconfig", "listen.port": 0}
        flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
        with (tmp_path / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*COMMAND, *flags, stderr=log)
        try:

            async def is_ready() -> bool:
                return "ready" in messages(tmp_path / "log")

            await eventually(is_ready, 60.0)
            process.send_signal(number)
            assert await asyncio.wait_for(process.wait(), 60) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert messages(tmp_path / "log")[-1] == "stopping"


def messages(log: Path) -> list[str]:
    """Return the messages of a log, one object a line; the last line may be half written."""
    whole, _, _ = log.read_text().rpartition("\n")
    return [json.loads(line)["msg"] for line in whole.splitlines()]
