"""`manifests/rendered` and its overlay: the chart as plain YAML, one file for each component, for people without Helm.

The playground needs no Helm, either: the admission policy that the chart has with a queue is a file of the tests.
"""

import re
from pathlib import Path

from tests.cluster.binaries import kubernetes_version
from tests.manifests.helm import CHART, MANIFESTS, helm

FOLDER = MANIFESTS / "rendered"
MONITORING = MANIFESTS / "overlays" / "monitoring"
"""What is off by default: it needs kinds of objects that not every cluster has."""
QUEUE_POLICY = MANIFESTS.parent / "tests" / "cluster" / "queue_policy.yaml"
NAMESPACE = "gputopo-system"
SCHEDULER_NAME = "gputopo"

_HEADER = "# Made from manifests/chart by `make manifests`; change the chart instead.\n"
_DOCUMENT = re.compile(r"^---\n# Source: gputopo/templates/(\w+)/.*\n", re.MULTILINE)
_OF_QUEUE = re.compile(r"^  name: gputopo-extender-pods$", re.MULTILINE)
_HELMS_OWN = re.compile(r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def render() -> dict[Path, str]:
    """Return file → text, as the files should be; raises what `helm` raises."""
    files: dict[Path, str] = {}
    for component, document in _documents("monitoring.enabled=true"):
        file = (MONITORING if component == "monitoring" else FOLDER) / f"{component}.yaml"
        files[file] = files.get(file, _HEADER) + document
    of_queue = (text for _, text in _documents("extender.config.queue.enabled=true") if _OF_QUEUE.search(text))
    return files | {QUEUE_POLICY: _HEADER + "".join(of_queue)}


def _documents(setting: str) -> list[tuple[str, str]]:
    """Return the chart's objects with a setting, as (component, text)."""
    text = helm(
        "template", "gputopo", CHART, "--namespace", NAMESPACE, "--kube-version", kubernetes_version(), "--skip-tests",
        "--set", "image.repository=gputopo", "--set", setting,
    )  # fmt: skip
    _, *parts = _DOCUMENT.split(_HELMS_OWN.sub("", text))
    return [(name, f"---\n{part.strip()}\n") for name, part in zip(parts[::2], parts[1::2], strict=True)]


def outdated() -> list[str]:
    """Return which files differ from what the chart gives."""
    return sorted(str(file.relative_to(MANIFESTS.parent)) for file, text in render().items() if not _is(file, text))


def write() -> None:
    """Write all files anew."""
    for file, text in render().items():
        file.write_text(text, encoding="utf-8")


def _is(file: Path, text: str) -> bool:
    return file.exists() and file.read_text(encoding="utf-8") == text
