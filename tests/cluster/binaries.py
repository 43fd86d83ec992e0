"""The Kubernetes programs that the cluster tests run: built once per user, or ready-made.

- Everything is pinned by `kube/go.mod` and `kube/go.sum`; `GPUTOPO_KUBE_VERSION=1.30` takes `kube/1.30.mod` and its sums instead,
  which pin the oldest Kubernetes that gputopo supports.
- A folder named by `GPUTOPO_KUBE_BIN` is used as it is, and then nothing is built.

By hand: `python -m tests.cluster.binaries` builds if need be and prints the folder.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes.kube_binaries import OVERRIDE
from tests.cluster.go_build import BinariesUnavailable, GoBuild

MODULE = Path(__file__).parent / "kube"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
NEEDED = ("etcd", "kube-apiserver", "kube-scheduler", "kubectl")
VERSION = "GPUTOPO_KUBE_VERSION"
NEWEST = "go"


def wanted() -> str:
    """Return the name of the file in `kube/`, less its `.mod`, that pins the version to run.

    Raises:
        FileNotFoundError: `GPUTOPO_KUBE_VERSION` names a version that is not pinned there.

    """
    pins = os.environ.get(VERSION) or NEWEST
    if not (MODULE / f"{pins}.mod").is_file():
        others = ", ".join(sorted(file.stem for file in MODULE.glob("*.mod") if file.stem != NEWEST))
        raise FileNotFoundError(
            f"{VERSION}={pins}: there is no {MODULE / pins}.mod; beside the newest there is {others}"
        )
    return pins


def kubernetes_version(pins: str = NEWEST) -> str:
    """Return the version that a `.mod` file of `kube/` pins, such as `v1.37.2`."""
    pinned = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / f"{pins}.mod").read_text(), re.MULTILINE)
    assert pinned is not None, f"{pins}.mod pins k8s.io/kubernetes"
    return pinned[1]


def is_oldest() -> bool:
    """Whether the oldest supported version is wanted, for tests of what came after it."""
    return wanted() != NEWEST


def find_or_build(announce: Callable[[str], None] = print) -> Path:
    """Return a folder with one executable per name in `PROGRAMS`, building it if no earlier run has.

    The first build takes minutes; two runs at once build only once, and the second waits.

    Args:
        announce: told in one line that a build begins, and how long it takes.

    Raises:
        BinariesUnavailable: there is no Go here, or it could not build.
        FileNotFoundError: `GPUTOPO_KUBE_BIN` names a folder without the programs that tests need, or
            `GPUTOPO_KUBE_VERSION` a version that is not pinned.

    """
    if override := os.environ.get(OVERRIDE):
        return _ready_made(Path(override))
    return _build().find_or_build(announce, _name_the_programs)


def cache_folder() -> Path:
    """Return the folder that `find_or_build` fills, whether or not it exists yet."""
    return _build().folder()


def _ready_made(folder: Path) -> Path:
    for program in NEEDED:
        if not os.access(folder / program, os.X_OK):
            raise FileNotFoundError(f"{OVERRIDE}={folder}: {program} is not an executable file there")
    return folder.resolve()


def _build() -> GoBuild:
    """Return the build of one binary that stands for all programs.

    A program built from published modules does not know its version, and kubectl and the scheduler judge
    compatibility by it, so the linker writes it in. VCS stamping would tie the result to this checkout.
    """
    pins = wanted()
    version = kubernetes_version(pins)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamps = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in facts.items()
    ]
    flags: tuple[str, ...] = (
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        " ".join(["-s", "-w", *stamps]),
    )
    if pins != NEWEST:
        flags = (f"-modfile={pins}.mod", f"-tags=kube{pins}", *flags)
    announcement = f"Kubernetes {version} (once, about five minutes)"
    without_go = f", and {OVERRIDE} is not set"
    return GoBuild(MODULE, "kube", (".",), flags, announcement, output="kube", otherwise=without_go, pins=pins)


def _name_the_programs(folder: Path) -> None:
    for program in PROGRAMS:
        (folder / program).symlink_to("kube")


if __name__ == "__main__":
    try:
        print(find_or_build(announce=lambda text: print(text, file=sys.stderr)))
    except (BinariesUnavailable, FileNotFoundError) as error:
        sys.exit(str(error))
