"""Builds the Kubernetes programs that the cluster tests run, once per user, and says where they are.

- Everything is pinned by `kube/go.mod` and `kube/go.sum`; the cache key is a hash of what the build reads.
- Nothing is written into the checkout; a folder in the cache is either whole or absent.
- A folder named by `GPUTOPO_KUBE_BIN` is used as it is, and then nothing is built.

By hand: `python -m tests.cluster.binaries` builds if need be and prints the folder.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

MODULE = Path(__file__).parent / "kube"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
NEEDED = ("etcd", "kube-apiserver", "kube-scheduler", "kubectl")
OVERRIDE = "GPUTOPO_KUBE_BIN"


class BinariesUnavailable(Exception):
    """The programs are not here and cannot be built here; the text says why in one line."""


def kubernetes_version() -> str:
    """Return the pinned version, such as `v1.36.2`."""
    pinned = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert pinned is not None, "go.mod pins k8s.io/kubernetes"
    return pinned[1]


def find_or_build(announce: Callable[[str], None] = print) -> Path:
    """Return a folder with one executable per name in `PROGRAMS`, building it if no earlier run has.

    The first build takes minutes; two runs at once build only once, and the second waits.

    Args:
        announce: told in one line that a build begins, and how long it takes.

    Raises:
        BinariesUnavailable: there is no Go here, or it could not build.
        FileNotFoundError: `GPUTOPO_KUBE_BIN` names a folder without the programs that tests need.

    """
    if override := os.environ.get(OVERRIDE):
        return _ready_made(Path(override))
    folder = cache_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(folder, announce)
    return folder


def cache_folder() -> Path:
    """Return the folder that `find_or_build` fills, whether or not it exists yet."""
    digest = hashlib.sha256("\0".join(_build_arguments()).encode())
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update(hashlib.sha256((MODULE / name).read_bytes()).digest())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gputopo" / "kube" / digest.hexdigest()[:16]


def _ready_made(folder: Path) -> Path:
    for program in NEEDED:
        if not os.access(folder / program, os.X_OK):
            raise FileNotFoundError(f"{OVERRIDE}={folder}: {program} is not an executable file there")
    return folder.resolve()


def _build_arguments() -> list[str]:
    """Return the arguments of `go build`, without the output.

    A program built from published modules does not know its version, and kubectl and the scheduler judge
    compatibility by it, so the linker writes it in. VCS stamping would tie the result to this checkout.
    """
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamps = [
        f"-X {package}.{name}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for name, value in facts.items()
    ]
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", " ".join(["-s", "-w", *stamps])]


def _build(folder: Path, announce: Callable[[str], None]) -> None:
    go = shutil.which("go")
    if go is None:
        raise BinariesUnavailable(f"no Go to build Kubernetes {kubernetes_version()}, and {OVERRIDE} is not set")
    announce(f"building Kubernetes {kubernetes_version()} into {folder} (once, about five minutes)")
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    build = subprocess.run(
        [go, "build", *_build_arguments(), "-o", str(unfinished / "kube"), "."],
        cwd=MODULE,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if build.returncode != 0:
        shutil.rmtree(unfinished)
        last_line = (build.stderr.strip() or f"exit status {build.returncode}").splitlines()[-1]
        raise BinariesUnavailable(f"go build in {MODULE} failed: {last_line}")
    for program in PROGRAMS:
        (unfinished / program).symlink_to("kube")
    unfinished.rename(folder)


if __name__ == "__main__":
    try:
        print(find_or_build(announce=lambda text: print(text, file=sys.stderr)))
    except (BinariesUnavailable, FileNotFoundError) as error:
        sys.exit(str(error))
