"""`manifests/rendered`: the chart as plain YAML, one file for each component, for people who do not use Helm."""

import re

from tests.cluster.binaries import kubernetes_version
from tests.manifests.helm import CHART, MANIFESTS, helm

FOLDER = MANIFESTS / "rendered"
NAMESPACE = "gputopo-system"

_HEADER = "# Made from manifests/chart by `make manifests`; change the chart instead.\n"
_DOCUMENT = re.compile(r"^---\n# Source: gputopo/templates/(\w+)/.*\n", re.MULTILINE)
_HELMS_OWN = re.compile(r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def render() -> dict[str, str]:
    """Return file name → text, as the files in `FOLDER` should be; raises what `helm` raises."""
    text = helm(
        "template", "gputopo", CHART, "--namespace", NAMESPACE, "--kube-version", kubernetes_version(),
        "--set", "image.repository=gputopo",
    )  # fmt: skip
    _, *parts = _DOCUMENT.split(_HELMS_OWN.sub("", text))
    files: dict[str, str] = {}
    for component, document in zip(parts[::2], parts[1::2], strict=True):
        files[f"{component}.yaml"] = files.get(f"{component}.yaml", _HEADER) + f"---\n{document.strip()}\n"
    return files


def outdated() -> list[str]:
    """Return the names of the files that differ from what the chart gives."""
    return sorted(name for name, text in render().items() if not _is(name, text))


def write() -> None:
    """Write all files anew."""
    for name, text in render().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def _is(name: str, text: str) -> bool:
    file = FOLDER / name
    return file.exists() and file.read_text(encoding="utf-8") == text
