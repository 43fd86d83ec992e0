"""Writes kubeconfig files: one server, one user."""

from __future__ import annotations

from pathlib import Path
from threading import get_ident

import yaml


def write_kubeconfig(
    path: Path, url: str, *, user: str = "anybody", token: str | None = None, ca_file: Path | None = None
) -> None:
    """Write a kubeconfig for the server at `url`; one without a token is for a server that asks nobody who they are."""
    cluster = {"server": url, **({"certificate-authority": str(ca_file)} if ca_file else {})}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gputopo", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token} if token else {}}],
        "contexts": [{"name": "gputopo", "context": {"cluster": "gputopo", "user": user}}],
        "current-context": "gputopo",
    }
    unfinished = path.with_name(f"{path.name}.{get_ident()}")  # programs may be reading the one that is there
    unfinished.write_text(yaml.safe_dump(config, sort_keys=False))
    unfinished.replace(path)
