"""`gputopo-agent`: publish this node's GPUs, their links and their health.

Exit codes: 0 yes, 1 a clear no (no driver, no GPU, no credentials), 2 bad usage or input.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from agent.config import AgentConfiguration, load
from agent.errors import ApiError, NvmlUnavailable
from agent.gpus.discovery import NodeDiscovery, discover
from agent.gpus.host import Host
from agent.gpus.nvml.reader import read_nvml
from extender.kit import logs
from extender.kit.configuration import ConfigurationError
from topology.annotations.codec import encode_topology
from topology.errors import PayloadError
from topology.formats.matrix import print_matrix

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


class OnceOutput(StrEnum):
    """What `--once` prints."""

    JSON = "json"
    """The topology as the agent would publish it."""
    MATRIX = "matrix"
    """As `nvidia-smi topo -m` prints it."""


@app.command(help=__doc__)
def run(
    once: Annotated[
        bool, typer.Option("--once", help="Print this node's topology, without a cluster, and exit.")
    ] = False,
    output: Annotated[
        OnceOutput | None,
        typer.Option("-o", "--output", help="What --once prints. Default: matrix on a terminal, else json."),
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="An AgentConfiguration in YAML.")] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the configuration in force, and exit.")
    ] = False,
    node_name: Annotated[str | None, typer.Option("--node-name", help="This node's name. Default: NODE_NAME.")] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", help="Time between two discoveries of the node, such as 30s.")
    ] = None,
    kubeconfig: Annotated[str | None, typer.Option("--kubeconfig", help="Default: the pod's service account.")] = None,
    print_version: Annotated[bool, typer.Option("--version", help="Print the version, and exit.")] = False,
) -> None:
    """Watch this node's GPUs, their NVLinks and their health, and publish them as annotations of its Node."""
    if print_version:
        print(version("gputopo"))
        return
    flags = {"nodeName": node_name, "discovery.interval": interval, "kubernetes.kubeconfig": kubeconfig}
    try:
        settings = load(config, os.environ, flags)
    except ConfigurationError as error:
        _end(2, str(error))
    if print_config:
        print(settings.to_yaml(), end="")
    elif once:
        _print_once(settings, output or (OnceOutput.MATRIX if sys.stdout.isatty() else OnceOutput.JSON))
    elif output:
        _end(2, "-o goes with --once")
    else:
        _serve(settings)


def main() -> None:
    """Run the command line."""
    app()


def _print_once(settings: AgentConfiguration, output: OnceOutput) -> None:
    try:
        discovery = discover(read_nvml(), _host(settings))
        text = (
            f"{encode_topology(discovery.topology)}\n"
            if output is OnceOutput.JSON
            else print_matrix(discovery.topology)
        )
    except (NvmlUnavailable, PayloadError) as error:
        _end(1, str(error))
    for line in _warnings(discovery):
        print(logs.printable(line, len(line)), file=sys.stderr)
    if not discovery.topology.gpus:
        counted = len(discovery.status.gpus)
        _end(1, f"none of {counted} GPUs can be identified" if counted else "the NVIDIA driver works, and finds no GPU")
    print(text, end="")


def _warnings(discovery: NodeDiscovery) -> list[str]:
    indexes = {gpu.uuid: f"GPU{gpu.index}" for gpu in discovery.topology.gpus}
    lines = [
        f"{indexes.get(gpu.uuid, gpu.uuid)}: {', '.join(gpu.reasons)}" for gpu in discovery.status.gpus if gpu.reasons
    ]
    faults = discovery.status.link_faults
    return lines + [f"{indexes.get(fault.gpu, fault.gpu)}: nvlink {fault.link} {fault.reason}" for fault in faults]


def _serve(settings: AgentConfiguration) -> None:
    if settings.node_name is None:
        _end(2, "which node is this? give --node-name, NODE_NAME or nodeName in the configuration")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when gRPC is imported; its own logs are no JSON
    from agent.serve import serve

    logs.start(settings.log.level, settings.log.format, unnamed="agent")
    try:
        serve(settings, settings.node_name, _host(settings))
    except (ApiError, NvmlUnavailable) as error:
        _end(1, str(error))


def _host(settings: AgentConfiguration) -> Host:
    return Host(settings.discovery.sys_root, settings.discovery.cpuinfo)


def _end(code: int, message: str) -> NoReturn:
    for line in message.splitlines():
        print(logs.printable(line, len(line)), file=sys.stderr)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
