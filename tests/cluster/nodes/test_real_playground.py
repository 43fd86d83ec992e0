"""`NODES=real make cluster`: `kubectl logs` of an example prints the GPUs that its process found, with their links."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.nodes.node import Parts
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS

ROOT = MANIFESTS.parent


def test_log_of_an_example_shows_its_gpus(parts: Parts) -> None:
    """Four GPUs that are joined by NVLinks, each pair of them."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NODES": "real"},
    ) as shown:
        assert shown.stdout is not None
        kubeconfig = next(found[1] for line in shown.stdout if (found := re.search(r"export KUBECONFIG=(\S+)", line)))
        kubectl = [str(parts.kubernetes / "kubectl"), "--kubeconfig", kubeconfig]
        try:
            subprocess.run([*kubectl, "apply", "-f", MANIFESTS / "examples" / "required-nvlink.yaml"], check=True)
            log = [*kubectl, "logs", "required-nvlink"]
            eventually(lambda: subprocess.run(log, capture_output=True, check=False).stdout.count(b"\n") > 1, 60)
            links = re.findall(r"^GPU\d and GPU\d: (\w+)$", subprocess.check_output(log, text=True), re.MULTILINE)
        finally:
            shown.send_signal(signal.SIGINT)
        assert shown.wait(60) == 0
    assert len(links) == 6
    assert all(link.startswith("NV") for link in links)
    assert not Path(kubeconfig).parent.exists()
