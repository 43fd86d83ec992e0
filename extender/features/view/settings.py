"""The view that can be shared."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from extender.kit.settings import Names, Section


class ViewSettings(Section):
    """Read-only pages on a port of their own, by HTTP, to stand behind an Ingress or a proxy that logs people in."""

    enabled: bool = False
    """Whether the pages are served. With `authorization: kubernetes` needs the rights to create TokenReviews and
    SubjectAccessReviews, and to list events."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8890, ge=0, le=65535)
    """Port. 0 takes a free one and logs it."""
    authorization: Literal["kubernetes", "none"] = "kubernetes"
    """`kubernetes`: readers send a bearer token of the cluster and see the pods that they may list, and the counts of all
    others. `none`: each client that reaches the port sees everything."""
    audiences: Names = ()
    """Audiences that tokens must have, at least one of them. Default: those of the API server."""
    allowed_hosts: Names = ()
    """Host names that the pages accept, such as the Ingress's. `*` matches anything."""
    grafana: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+[^\s?#/])?$")] = ""
    """Address of a Grafana with the chart's dashboards. Pages of nodes link to it."""
