"""`NODES=real make cluster`: what it tells people to type does what it says."""

import os
import re
import subprocess
import sysconfig

import pytest

from tests.cluster.binaries import find_or_build
from tests.cluster.playground_process import playground
from tests.cluster.polling import eventually
from tests.image import base
from tests.installed.playground import INSTRUCTIONS

pytestmark = [pytest.mark.waits, pytest.mark.usefixtures("cluster")]


def test_what_it_prints_works_as_printed() -> None:
    """The log of an example names four GPUs, joined each to each by NVLinks; for one ring more there is no room."""
    binaries = find_or_build()
    with playground(binaries, NODES="real") as (_, _, kubeconfig):
        path = os.pathsep.join([str(binaries), sysconfig.get_path("scripts"), os.environ["PATH"]])
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "PATH": path}

        def typed(line: str) -> str:
            done = subprocess.run(
                line, shell=True, check=False, env=environment, cwd=base.ROOT, capture_output=True, text=True
            )
            return done.stdout

        apply, wait, logs, nodes, what_if, pods = INSTRUCTIONS
        typed(apply)
        assert typed(wait).count("condition met") == 2
        log = eventually(lambda: found if (found := typed(logs)).count("\n") > 1 else "")
        links = re.findall(r"^GPU\d and GPU\d: (\w+)$", log, re.MULTILINE)
        assert len(links) == 6
        assert all(link.startswith("NV") for link in links)
        assert typed(nodes).count("NVIDIA") == 3
        eventually(lambda: "no suitable GPU is free" in typed(what_if))
        assert typed(pods).count("Running") == 5
