"""The real Karpenter with its kwok provider, which makes Node objects and no machines, and the CRDs that it reads.

Pinned by a Go module of its own and built once per user. By hand: `python -m tests.cluster.karpenter.program`.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster.go_build import BinariesUnavailable, GoBuild

HERE = Path(__file__).parent
MODULE = "sigs.k8s.io/karpenter"
KARPENTER = GoBuild(
    HERE,
    "karpenter",
    (f"{MODULE}/kwok",),
    ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
    "Karpenter and its kwok provider (once, about three minutes)",
    output="karpenter",
)


def find_or_build(announce: Callable[[str], None] = print) -> Path:
    """Return the folder with the program `karpenter` and the folder `crds`; raises `BinariesUnavailable`."""
    return KARPENTER.find_or_build(announce, _add_crds)


def _add_crds(folder: Path) -> None:
    listed = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", MODULE], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True
    )
    source = Path(listed.stdout.strip())
    (folder / "crds").mkdir()
    for file in (*source.glob("kwok/charts/crds/*.yaml"), *source.glob("kwok/apis/crds/*.yaml")):
        shutil.copyfile(file, folder / "crds" / file.name)


if __name__ == "__main__":
    try:
        print(find_or_build(announce=lambda text: print(text, file=sys.stderr)))
    except BinariesUnavailable as error:
        sys.exit(str(error))
