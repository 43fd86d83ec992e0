"""`make cluster`: the examples do there what they say, and Ctrl-C leaves nothing behind."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS

ROOT = MANIFESTS.parent


def test_examples_run_in_the_playground(binaries: Path) -> None:
    """All but the one for which nothing is free now; it is told why."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cluster"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as shown:
        assert shown.stdout is not None
        kubeconfig = next(found[1] for line in shown.stdout if (found := re.search(r"export KUBECONFIG=(\S+)", line)))
        kubectl = [str(binaries / "kubectl"), "--kubeconfig", kubeconfig]
        try:
            subprocess.run([*kubectl, "apply", "-f", MANIFESTS / "examples"], check=True, stdout=subprocess.DEVNULL)
            waiting = [*kubectl, "get", "pods", "--field-selector=status.phase!=Running", "-o", "name"]
            eventually(lambda: subprocess.check_output(waiting, text=True).split() == ["pod/relax-after"])
            events = subprocess.check_output([*kubectl, "events", "--for", "pod/relax-after"], text=True)
            assert "share an NVLink ring, pod needs 8" in events
        finally:
            shown.send_signal(signal.SIGINT)
        assert shown.wait(20) == 0
    assert not Path(kubeconfig).parent.exists()
