"""`gputopo-extender`: read the configuration, then serve kube-scheduler until a signal.

Exit codes: 0 stopped by a signal, 1 something broke, 2 the configuration is wrong.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from extender.config.document import ExtenderConfiguration
from extender.kit import logs, traces
from extender.kit.configuration import ConfigurationError
from extender.kit.plain_structlog import structlog
from extender.kubernetes.reflector import Unavailable

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
log = structlog.get_logger("extender")


@app.command(help=__doc__)
def run(
    config: Annotated[Path | None, typer.Option(help="An ExtenderConfiguration in YAML.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting: listen.port=9000.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the configuration in force, and exit.")
    ] = False,
    print_version: Annotated[bool, typer.Option("--version", help="Print the version, and exit.")] = False,
) -> None:
    """Serve, or print what would be served with."""
    if print_version:
        print(version("gputopo"))
        return
    from extender.features.configuration import load  # it loads every feature, which the version does not need

    try:
        overrides = dict(_pair(setting) for setting in settings or ())
        effective = load(config, os.environ, overrides)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            print(logs.printable(line, len(line)), file=sys.stderr)
        raise typer.Exit(2) from error
    if print_config:
        print(effective.to_yaml(), end="")
        return
    logs.start(effective.log.level, effective.log.format)
    _allow_many_connections()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(effective))
    except (OSError, Unavailable) as error:
        log.error("cannot start", reason=str(error))
        raise typer.Exit(1) from error
    except ExceptionGroup as group:
        log.critical("died", exc_info=group)
        raise typer.Exit(1) from group


async def _serve(effective: ExtenderConfiguration) -> None:
    from extender.web.server import serve

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with traces.started(os.environ) as sent:
        await serve(effective, stop, traces=sent)


def _allow_many_connections() -> None:
    """Take as many open files as we may have: the soft limit is often 1024, which idle peers alone could use up."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals:
        raise ConfigurationError(f"--set {setting}: not KEY=VALUE")
    return key, value
