"""`make cluster` as somebody at a terminal has it: started, used from another terminal, and ended with Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.manifests.helm import MANIFESTS

END_WITHIN_SECONDS = 60.0


@contextmanager
def playground(programs: Path, **environment: str) -> Iterator[list[str]]:
    """Give the beginning of a kubectl command in a playground; it must end well on Ctrl-C and leave nothing behind."""
    command, variables = [sys.executable, "-m", "tests.cluster"], {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=MANIFESTS.parent, env=variables) as shown:
        assert shown.stdout is not None
        kubeconfig = next(found[1] for line in shown.stdout if (found := re.search(r"export KUBECONFIG=(\S+)", line)))
        try:
            yield [str(programs / "kubectl"), "--kubeconfig", kubeconfig]
        finally:
            shown.send_signal(signal.SIGINT)
        assert shown.wait(END_WITHIN_SECONDS) == 0
    assert not Path(kubeconfig).parent.exists()
