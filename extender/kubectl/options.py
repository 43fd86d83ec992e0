"""The options that several verbs of the plugin have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from extender.kubectl.output import Output

Format = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Headless = Annotated[bool, typer.Option("--no-headers", help="Print tables without their heads.")]
File = Annotated[Path | None, typer.Option("--kubeconfig", help="Instead of $KUBECONFIG or ~/.kube/config.")]
Context = Annotated[str | None, typer.Option(help="Instead of the kubeconfig's current context.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Instead of the context's namespace.")]
Resource = Annotated[str, typer.Option(help="The resource that counts GPUs.")]
SchedulerNames = Annotated[
    list[str] | None,
    typer.Option("--scheduler-name", help="A scheduler that asks gputopo, by default `gputopo`; may be said again."),
]
Url = Annotated[
    str | None, typer.Option("--extender", envvar="GPUTOPO_EXTENDER", help="URL of a running extender, to ask it.")
]
SnapshotFile = Annotated[
    Path | None,
    typer.Option("--snapshot", envvar="GPUTOPO_SNAPSHOT", help="A file of `snapshot`, instead of a cluster."),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Go on, and print what changes, until Ctrl-C.")]
