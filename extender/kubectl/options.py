"""The options that several verbs of the plugin have, each said once, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from importlib.metadata import version
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from extender.config.defaults import SCHEDULER_NAME
from extender.kubectl.form import Form, Output
from extender.kubectl.reading import StateSource
from topology.annotations import keys


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("gputopo"))
        raise typer.Exit


Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
Format = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Headless = Annotated[bool, typer.Option("--no-headers", help="Print tables without headings.")]
File = Annotated[Path | None, typer.Option("--kubeconfig", help="Instead of $KUBECONFIG or ~/.kube/config.")]
Context = Annotated[str | None, typer.Option(help="Instead of the kubeconfig's current context.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Instead of the context's namespace.")]
Resource = Annotated[str, typer.Option(help="The resource that counts GPUs.")]
SchedulerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler-name",
        envvar="GPUTOPO_SCHEDULER_NAME",
        help="A scheduler that uses gputopo, by default `gputopo`; may be repeated.",
    ),
]
ToleratedTaints = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerated-taint",
        envvar="GPUTOPO_TOLERATED_TAINT",
        help="Key of a taint that all pods with GPUs tolerate; may be repeated.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--extender",
        envvar="GPUTOPO_EXTENDER",
        help="URL of a running extender, which then answers. `auto` finds it, and forwards a port.",
    ),
]
SnapshotFile = Annotated[
    Path | None,
    typer.Option("--snapshot", envvar="GPUTOPO_SNAPSHOT", help="A file of `snapshot`, instead of a cluster."),
]
Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit."),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Continue, and print changes, until Ctrl-C.")]

_OF_ALL: Final[dict[str, tuple[Any, Any]]] = {
    "output": (Format, Output.TABLE),
    "no_headers": (Headless, False),
    "file": (File, None),
    "context": (Context, None),
    "snapshot": (SnapshotFile, None),
    "resource": (Resource, keys.GPU_RESOURCE),
    "scheduler_names": (SchedulerNames, None),
    "tolerated_taints": (ToleratedTaints, None),
    "extender": (Url, None),
}
"""Name → type and default of the options that say who is asked, and how to print."""
_MADE: Final = ("source", "form")
"""What is made of them."""


def verb(
    app: typer.Typer, group: str, name: str | None = None, *, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a verb of a function of `source` and perhaps `form`: the command line gets the options that these are made of.

    Args:
        app: The command line.
        group: The heading of its help under which the verb stands.
        name: The verb; default the function's name.
        without: Options that it does not have.

    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @app.command(name, rich_help_panel=group)
        @wraps(function)
        def run(**given: Any) -> None:
            said = {option: given.pop(option, default) for option, (_, default) in _OF_ALL.items()}
            form = Form(said["output"], not said["no_headers"])
            source = StateSource(
                said["file"],
                said["context"],
                said["snapshot"],
                said["resource"],
                said["extender"],
                scheduler_names=tuple(said["scheduler_names"] or (SCHEDULER_NAME,)),
                tolerated_taints=tuple(said["tolerated_taints"] or ()),
            )
            made = {"source": source, "form": form}
            with source.until_end:
                function(**{name: made[name] for name in made if name in wanted}, **given)

        wanted = signature(function, eval_str=True).parameters
        own = [parameter for parameter in wanted.values() if parameter.name not in _MADE]
        shared = [
            Parameter(option, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for option, (kind, default) in _OF_ALL.items()
            if option not in without
        ]
        run.__signature__ = Signature([parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own] + shared)  # type: ignore[attr-defined]
        return function

    return register
