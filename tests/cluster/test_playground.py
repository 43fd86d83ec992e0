"""`make cluster`: the examples do there what they say, and Ctrl-C leaves nothing behind."""

import subprocess
from pathlib import Path

import yaml

from tests.cluster.playground import NO_AGENTS
from tests.cluster.playground_process import playground
from tests.cluster.polling import eventually
from tests.manifests.helm import MANIFESTS


def test_examples_run_in_the_playground(binaries: Path) -> None:
    """All but the one for which nothing is free now; it is told why."""
    with playground(binaries) as kubectl:
        subprocess.run([*kubectl, "apply", "-f", MANIFESTS / "examples"], check=True, stdout=subprocess.DEVNULL)
        waiting = [*kubectl, "get", "pods", "--field-selector=status.phase!=Running", "-o", "name"]
        eventually(lambda: subprocess.check_output(waiting, text=True).split() == ["pod/relax-after"])
        events = subprocess.check_output([*kubectl, "events", "--for", "pod/relax-after"], text=True)
        assert "no 8 free GPUs share an NVLink ring" in events
        settings = yaml.safe_load((Path(kubectl[-1]).parent / "extender-0.yaml").read_text())
        assert settings["agents"]["silence"] == NO_AGENTS, "nodes without agents close while somebody looks at them"
