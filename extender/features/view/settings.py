"""The view that can be shared."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from extender.kit.settings import Names, Section


class ViewSettings(Section):
    """Read-only pages on a port of their own, for a proxy that logs people in."""

    enabled: bool = False
    """Serve them. Needs the rights to list events and to create TokenReviews and SubjectAccessReviews."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=8890, ge=0, le=65535)
    """Port. 0 takes a free one and logs it."""
    authorization: Literal["kubernetes", "none"] = "kubernetes"
    """`kubernetes`: readers send tokens and see the pods that they may list. `none`: all clients see everything."""
    audiences: Names = ()
    """Audiences, of which tokens need one. Default: the API server's."""
    allowed_hosts: Names = ()
    """As `listen.allowedHosts`."""
    samples: bool = False
    """Show utilization, power and temperature on the pages of nodes. Needs the right to get `pods/proxy` of the agents."""
    grafana: Annotated[str, Field(pattern=r"^(https?://[^\s?#]+[^\s?#/])?$")] = ""
    """URL of a Grafana with the chart's dashboards."""
