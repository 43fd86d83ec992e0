"""The image gets the developers' versions without the developers' tools, and runs as whom the chart says."""

import re
import tomllib
from fnmatch import fnmatch
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.image.test_image import closure
from tests.manifests.objects import pod_specs

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^(?P<name>[\w.-]+)==[^\n]+(?:\n    --hash=\S+(?: \\)?)+", re.MULTILINE)


def pins(lock: str) -> dict[str, set[str]]:
    """Return distribution → its pins: version and hashes as they are written.

    Where they are wanted (`; sys_platform == 'win32'`) is left out: a tool may want everywhere what the image wants somewhere.
    """
    found: dict[str, set[str]] = {}
    for match in PIN.finditer((ROOT / lock).read_text()):
        found.setdefault(match["name"], set()).add(re.sub(r" ;[^\n\\]*(?= \\)", "", match[0], count=1))
    return found


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-traces.lock", "requirements-build.lock"])
def test_image_has_exactly_the_developers_versions(lock: str) -> None:
    """What was tested is what is shipped, hash by hash; so is what the wheel is made with."""
    developers, image = pins("requirements.lock"), pins(lock)
    assert {name: developers[name] for name in image} == image


def test_builder_of_the_image_may_read_all_that_it_copies() -> None:
    """What `.dockerignore` leaves out, no builder can copy."""
    taken = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    wanted = {word for words in copied for word in words.split()}
    assert wanted
    assert {word for word in wanted if not any(fnmatch(word, pattern) for pattern in taken)} == set()


def test_image_has_every_dependency_and_no_tool() -> None:
    """Run-time dependencies are all there; of the developers' groups nothing is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    image = pins("requirements-image.lock").keys()
    assert image >= set(project["project"]["dependencies"])
    groups = [group for name, group in project["dependency-groups"].items() if name != "kubectl"]
    assert not image & {tool for group in groups for tool in group if isinstance(tool, str)}


def test_kubectl_plugin_needs_nothing_that_the_image_does_not() -> None:
    """So its libraries are those that were tested; only networkx has two versions, of which it takes the older."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["dependency-groups"]["kubectl"]) < set(project["project"]["dependencies"])
    plugin, developers = pins("requirements-kubectl.lock"), pins("requirements.lock")
    assert {name: pin - developers[name] for name, pin in plugin.items() if pin - developers[name]} == {}


def test_page_counts_the_distributions_of_the_image() -> None:
    """And those that the official client brings by itself."""
    page = (ROOT / "docs/explanation/security.md").read_text()
    counts = re.search(r"The image has (\d+)\ndistributions, (\d+) of them for the official Kubernetes client", page)
    assert counts
    of_image = pins("requirements-image.lock").keys() - {"colorama"}  # wanted on Windows only
    of_client = closure("kubernetes", {name: distribution(name) for name in of_image})
    assert [int(count) for count in counts.groups()] == [len(of_image), len(of_client)]


def test_image_for_traces_is_the_usual_one_and_the_extra() -> None:
    """Every distribution of the usual image is in it, in the same version."""
    usual, traces = pins("requirements-image.lock"), pins("requirements-traces.lock")
    assert {name: traces[name] for name in usual} == usual
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= traces.keys() - usual.keys()


def test_image_and_pods_agree_on_the_user() -> None:
    """Whoever starts the image by hand is as powerless as the pods are."""
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    security = [spec["securityContext"] for spec in pod_specs()]
    assert {(str(found["runAsUser"]), str(found["runAsGroup"])) for found in security} == {user}
