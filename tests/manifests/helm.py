"""The Helm that `manifests/render/go.mod` pins: Go builds it on first use and keeps it in its own build cache."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
MODULE = MANIFESTS / "render"
CHART = MANIFESTS / "chart"


class HelmUnavailable(Exception):
    """Helm is not here and cannot be built here; the text says why in one line."""


class HelmRefused(Exception):
    """Helm ended with an error; the text is what it said."""


def helm(*arguments: str | Path) -> str:
    """Run Helm and return what it printed.

    Raises:
        HelmUnavailable: there is no Go here, or it could not build Helm.
        HelmRefused: the chart, the values or the cluster are not as Helm wants them.
    """
    ended = subprocess.run([executable(), *arguments], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise HelmRefused(ended.stderr.strip())
    return ended.stdout


@cache
def executable() -> Path:
    """Return where Helm is, after building it if need be: two minutes, once."""
    go = shutil.which("go")
    if go is None:
        raise HelmUnavailable("no Go to build Helm with")
    built = subprocess.run(
        [go, "tool", "-n", "helm"],  # prints the executable's path, which it has to build for that
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        last_line = (built.stderr.strip() or f"exit status {built.returncode}").splitlines()[-1]
        raise HelmUnavailable(f"go could not build Helm in {MODULE}: {last_line}")
    return Path(built.stdout.strip())


def render(*settings: str, cluster: str = "v1.37.2", namespace: str = "gputopo-system") -> str:
    """Return what the chart makes of settings, each `path=value`."""
    values = [word for setting in ("image.repository=gputopo", *settings) for word in ("--set", setting)]
    return helm("template", "gputopo", CHART, "-n", namespace, "--kube-version", cluster, "--skip-tests", *values)


def configuration(rendered: str, file: str) -> dict[str, Any]:
    """Return what is in one file of the scheduler's ConfigMap."""
    (text,) = (found["data"][file] for found in yaml.safe_load_all(rendered) if file in found.get("data", ()))
    settings: dict[str, Any] = yaml.safe_load(text)
    return settings
