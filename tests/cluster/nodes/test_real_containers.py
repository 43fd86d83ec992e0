"""With a real runtime tests look inside the process: what was injected is there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.go_build import GoBuild
from tests.cluster.nodes import programs
from tests.cluster.nodes.containerd import containerd
from tests.cluster.nodes.inside import seen_inside
from tests.cluster.nodes.nodes import Nodes
from tests.cluster.nodes.plugins import wilful
from tests.cluster.nodes.pods import bound_pod, is_running, submit
from tests.cluster.nodes.runtime import Runtime
from tests.cluster.polling import eventually


@pytest.fixture(scope="session")
def real_runtime(built: Callable[[GoBuild], Path]) -> Runtime:
    """Return containerd with runc."""
    return containerd(built(programs.CONTAINERD), built(programs.RUNC))


def test_process_sees_the_gpus_that_it_was_given(nodes: Nodes, real_runtime: Runtime) -> None:
    """Environment and device nodes inside the container are those of the devices that the kubelet accounts for."""
    node = nodes.one("hgx_h100", real_runtime)
    wilful(node)
    submit(node, bound_pod(node, "two", 2))
    eventually(lambda: is_running(node, "two"), within_seconds=60)
    view = seen_inside(node, "two")
    gpus = node.held()["two", "main"]
    assert set(view.env["NVIDIA_VISIBLE_DEVICES"].split(",")) == gpus
    assert view.devices == {f"/dev/nvidia{node.machine.uuids.index(uuid)}" for uuid in gpus}
