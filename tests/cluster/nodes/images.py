"""Container images made by hand: our program `inside` under two names, so that nothing has to be pulled."""

import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

IMAGE = "gputopo.test/inside:1"
"""Tells what GPUs it sees, and waits."""
EXAMPLES = "docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04"
"""What the examples of the documentation run. Here its shell is our program, which tells, too, and runs nothing else."""
PAUSE = "gputopo.test/pause:1"
"""Waits; the process that holds a pod's namespaces."""


def write_archive(file: Path, names: Sequence[str], program: Path, entrypoint: str) -> None:
    """Write an image with one program, its shell too, as `docker save` would, for `ctr images import`."""
    _write(file, names, {entrypoint: program, "/sh": program}, {"Entrypoint": [entrypoint], "Env": ["PATH=/"]})


def write_shell_archive(file: Path, name: str, programs: Mapping[str, Path]) -> None:
    """Write an image with this machine's `sh`, the libraries that it needs, and further programs by their path inside."""
    shell = Path(shutil.which("sh") or "/bin/sh").resolve()
    needed = subprocess.run(["ldd", shell], capture_output=True, text=True, check=True).stdout
    libraries = {path: Path(path).resolve() for path in re.findall(r"(/\S+) \(0x", needed)}
    _write(file, [name], {"/bin/sh": shell, **libraries, **programs}, {"Env": ["PATH=/bin"]})


def _write(file: Path, names: Sequence[str], files: Mapping[str, Path], settings: Mapping[str, object]) -> None:
    layer, first_of = io.BytesIO(), dict[Path, str]()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for inside, outside in files.items():
            info = tarfile.TarInfo(inside.removeprefix("/"))
            info.mode = 0o755
            if outside in first_of:
                info.type, info.linkname = tarfile.LNKTYPE, first_of[outside]
                archive.addfile(info)
                continue
            first_of[outside], info.size = info.name, outside.stat().st_size
            archive.addfile(info, io.BytesIO(outside.read_bytes()))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer.getvalue()).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [*names], "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as archive:
        for entry, content in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", layer.getvalue()),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            info = tarfile.TarInfo(entry)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
