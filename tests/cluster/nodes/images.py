"""Container images made by hand: our program `inside` under two names, so that nothing has to be pulled."""

import io
import json
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

IMAGE = "gputopo.test/inside:1"
"""Tells what GPUs it sees, and waits."""
EXAMPLES = "registry.k8s.io/pause:3.10"
"""What the examples of the documentation run; here it tells, too."""
PAUSE = "gputopo.test/pause:1"
"""Waits; the process that holds a pod's namespaces."""


def write_archive(file: Path, names: Sequence[str], program: Path, entrypoint: str) -> None:
    """Write an image with one program as `docker save` would, for `ctr images import`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        info = tarfile.TarInfo(entrypoint.removeprefix("/"))
        info.size, info.mode = program.stat().st_size, 0o755
        archive.addfile(info, io.BytesIO(program.read_bytes()))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [entrypoint], "Env": ["PATH=/"]},
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
