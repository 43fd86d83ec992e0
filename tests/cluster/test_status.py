"""`kubectl gputopo status` against a real API server: its version, and the policies that it has."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from extender.inspect.control_plane import GUARDS
from tests.cluster.admission import BINDINGS
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster
from tests.cluster.installation import USERS, Installation
from tests.cluster.kubectl import kubectl
from tests.cluster.polling import eventually
from tests.extender.plugin import invoke
from tests.manifests.helm import MANIFESTS

PAGE = MANIFESTS.parent / "docs/reference/command-line.md"


@pytest.fixture(scope="module")
def own(binaries: Path) -> Iterator[Installation]:
    """Install gputopo in a control plane whose rights and policies may be changed; `reader` has the role of the docs."""
    with ControlPlane(binaries, users={**USERS, "reader": [], "lister": []}) as plane:
        installed = Installation(plane)
        (role,) = re.findall(r"```yaml\n(.*?name: gputopo-reader.*?)```", PAGE.read_text(), re.DOTALL)
        kubectl(plane, "apply", "-f", "-", given=role)
        kubectl(plane, "create", "clusterrole", "lister", "--verb=list", "--resource=nodes,pods")
        for user, name in (("reader", "gputopo-reader"), ("lister", "lister")):
            kubectl(plane, "create", "clusterrolebinding", user, f"--clusterrole={name}", f"--user={user}")
        yield installed


def status(own: Installation, user: str, *more: str) -> str:
    """Return what the plugin prints for this user; it must find the cluster."""
    told = invoke("status", "--kubeconfig", str(own.plane.kubeconfig(user)), *more)
    assert told.exit_code in (0, 1), told.output
    return told.stdout


def test_the_documented_role_is_enough_for_versions_and_policies(own: Installation) -> None:
    """As the chart installs them they all act; who may list nodes and pods alone hears what is missing, and no false alarm."""
    version = f"API server: {own.plane.admin.get('/version')['gitVersion']}\n"
    told, less = status(own, "reader", "-o", "wide"), status(own, "lister")
    assert version in told
    assert re.search(r"^policies: ([0-9]+) of \1 bound$", told, re.MULTILINE)
    assert all(re.search(rf"^gputopo-{guard} +Deny$", told, re.MULTILINE) for guard in GUARDS)
    assert version in less
    assert "policies: not known (no right to list validatingadmissionpolicies)" in less
    assert not any("admission polic" in line for each in (told, less) for line in each.splitlines()[7:])


def test_an_extender_says_what_its_forbidden_write_was_answered(own: Installation) -> None:
    """With the policies bound it is refused; a binding that is gone is found by whoever may list."""
    GpuCluster(own.plane, extender := own.extender({"policies": {"look": "1s"}})).join(SimulatedNode("n1", "t4-4"))
    with extender.running():
        eventually(
            lambda: "policies: in force, as the extender tried" in status(own, "lister", "--extender", extender.url)
        )
        own.plane.admin.delete(f"{BINDINGS}/gputopo-extender-ledger")
        assert "they do nothing: gputopo-extender-ledger " in status(own, "reader")
        eventually(
            lambda: "policies: not in force, as the extender" in status(own, "lister", "--extender", extender.url)
        )
        assert "can forge our records" in status(own, "lister", "--extender", extender.url)
