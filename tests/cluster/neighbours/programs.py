"""The controllers that make groups of pods: Kueue, JobSet and LeaderWorkerSet, built once per user, with their own manifests.

One Go module pins all three, so that they share what they have in common.

By hand: `python -m tests.cluster.neighbours.programs` builds them if need be and prints the folder.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.go_build import BinariesUnavailable, GoBuild

HERE = Path(__file__).parent
KUEUE, JOBSET, LWS = "kueue", "jobset", "lws"
_PACKAGES = {KUEUE: "sigs.k8s.io/kueue/cmd/kueue", JOBSET: "sigs.k8s.io/jobset", LWS: "sigs.k8s.io/lws/cmd"}

CONTROLLERS = GoBuild(
    HERE,
    "neighbours",
    tuple(_PACKAGES.values()),
    ("-p", "2", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
    "Kueue, JobSet and LeaderWorkerSet (once, about three minutes)",
)


def find_or_build(announce: Callable[[str], None] = print) -> Path:
    """Return the folder with a program and a folder `<program>-config` for each; raises `BinariesUnavailable`."""
    return CONTROLLERS.find_or_build(announce, _complete)


def _complete(folder: Path) -> None:
    """Call LeaderWorkerSet's program by its name, and lay the manifests of the same versions beside the programs."""
    (folder / "cmd").rename(folder / LWS)
    for name in _PACKAGES:
        module = f"sigs.k8s.io/{name}"
        found = subprocess.run(
            ["go", "list", "-m", "-f", "{{.Dir}}", module], cwd=HERE, capture_output=True, text=True, check=True
        )
        shutil.copytree(Path(found.stdout.strip()) / "config", folder / f"{name}-config", copy_function=shutil.copyfile)
        for path in (folder / f"{name}-config", *(folder / f"{name}-config").rglob("*/")):
            path.chmod(0o755)  # the module cache is read-only, and so would be what is copied from it


if __name__ == "__main__":
    try:
        print(find_or_build(announce=lambda text: print(text, file=sys.stderr)))
    except BinariesUnavailable as error:
        sys.exit(str(error))
