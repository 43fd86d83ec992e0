"""`NODES=real make cluster`: `kubectl logs` of an example prints the GPUs that its process found, with their links."""

import re
import subprocess

from tests.cluster.nodes.node import Parts
from tests.cluster.playground_process import playground
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS


def test_log_of_an_example_shows_its_gpus(parts: Parts) -> None:
    """Four GPUs that are joined by NVLinks, each pair of them."""
    with playground(parts.kubernetes, NODES="real") as kubectl:
        subprocess.run([*kubectl, "apply", "-f", MANIFESTS / "examples" / "required-nvlink.yaml"], check=True)
        log = [*kubectl, "logs", "required-nvlink"]
        eventually(lambda: subprocess.run(log, capture_output=True, check=False).stdout.count(b"\n") > 1, 60)
        links = re.findall(r"^GPU\d and GPU\d: (\w+)$", subprocess.check_output(log, text=True), re.MULTILINE)
    assert len(links) == 6
    assert all(link.startswith("NV") for link in links)
