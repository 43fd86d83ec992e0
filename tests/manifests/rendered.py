"""`manifests/rendered` and its overlay: the chart as plain YAML, one file for each component, for people without Helm."""

import re
from pathlib import Path

from tests.cluster.binaries import kubernetes_version
from tests.manifests.helm import CHART, MANIFESTS, helm

FOLDER = MANIFESTS / "rendered"
MONITORING = MANIFESTS / "overlays" / "monitoring"
"""What is off by default: it needs kinds of objects that not every cluster has."""
NAMESPACE = "gputopo-system"
SCHEDULER_NAME = "gputopo"

_HEADER = "# Made from manifests/chart by `make manifests`; change the chart instead.\n"
_DOCUMENT = re.compile(r"^---\n# Source: gputopo/templates/(\w+)/.*\n", re.MULTILINE)
_HELMS_OWN = re.compile(r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def render() -> dict[Path, str]:
    """Return file → text, as the files should be; raises what `helm` raises."""
    text = helm(
        "template", "gputopo", CHART, "--namespace", NAMESPACE, "--kube-version", kubernetes_version(), "--skip-tests",
        "--set", "image.repository=gputopo", "--set", "monitoring.enabled=true",
    )  # fmt: skip
    _, *parts = _DOCUMENT.split(_HELMS_OWN.sub("", text))
    files: dict[Path, str] = {}
    for component, document in zip(parts[::2], parts[1::2], strict=True):
        file = (MONITORING if component == "monitoring" else FOLDER) / f"{component}.yaml"
        files[file] = files.get(file, _HEADER) + f"---\n{document.strip()}\n"
    return files


def outdated() -> list[str]:
    """Return which files differ from what the chart gives."""
    return sorted(str(file.relative_to(MANIFESTS)) for file, text in render().items() if not _is(file, text))


def write() -> None:
    """Write all files anew."""
    for file, text in render().items():
        file.write_text(text, encoding="utf-8")


def _is(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text
