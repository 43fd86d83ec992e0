"""buildah with a storage of its own, so that a test neither sees nor leaves anything in the machine's."""

import configparser
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.image import base

TOOLS = ("buildah", "debootstrap")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP = ("index-url", "extra-index-url", "trusted-host", "proxy", "cert", "default-timeout")
_PIP_FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")


@dataclass(frozen=True, slots=True)
class Builder:
    """Works without user namespaces, overlay file systems and cgroups: by chroot, and by copying."""

    folder: Path
    source: Path = base.ROOT
    """The checkout whose image it makes."""

    def run(self, *command: str | Path) -> str:
        """Run a command with this storage, and return what it printed; raises `CalledProcessError`, its output beside it."""
        done = subprocess.run(
            [*map(str, command)], cwd=self.source, env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout.strip()

    def get_base(self) -> None:
        """Pull what the Containerfile builds on, or make something like it under the same name."""
        pull = ["buildah", "pull", "--quiet", base.NAME]
        if subprocess.run(pull, env=self._environment(), capture_output=True, check=False).returncode != 0:
            archive = base.make()
            container = self.run("buildah", "from", "scratch")
            self.run("buildah", "add", "--quiet", container, archive, "/")
            self.run("buildah", "commit", "--quiet", "--rm", container, base.NAME)

    def make_image(self, tag: str) -> None:
        """Run `make image`; pip finds the packages there as it does here."""
        settings = self.folder / "pip.conf"
        settings.write_text(_pip_settings())
        volumes = [f"--volume={settings}:/etc/pip.conf:ro"]
        if _CERTIFICATES.exists():
            volumes.append(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro")
        arguments = " ".join(["--pull-never", *volumes])
        self.run("make", "image", "BUILDER=buildah", f"TAG={tag}", f"BUILD_ARGS={arguments}")

    def save(self, image: str, archive: Path) -> None:
        """Write an image as a file that container runtimes import."""
        self.run("make", "image-archive", "BUILDER=buildah", f"TAG={image}", f"ARCHIVE={archive}")

    def clean(self) -> None:
        """Remove all containers and images."""
        self.run("buildah", "umount", "--all")
        self.run("buildah", "rm", "--all")
        self.run("buildah", "rmi", "--all")

    def files(self, image: str) -> Path:
        """Return the folder with a copy of the image's files."""
        return Path(self.run("buildah", "mount", self.run("buildah", "from", "--pull-never", image)))

    def config(self, image: str) -> dict[str, Any]:
        """Return what the image says of how it is to be run: `User`, `Env`, `Cmd`."""
        described: dict[str, Any] = json.loads(self.run("buildah", "inspect", "--type", "image", image))
        config: dict[str, Any] = described["OCIv1"]["config"]
        return config

    def _environment(self) -> dict[str, str]:
        storage = self.folder / "storage.conf"
        folders = f'graphroot = "{self.folder / "storage"}"\nrunroot = "{self.folder / "run"}"\n'
        storage.write_text(f'[storage]\ndriver = "vfs"\n{folders}')
        return os.environ | {"CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"}


def _pip_settings() -> str:
    """Return this machine's own settings of pip as one file: files first, then variables."""
    found = configparser.RawConfigParser()
    found.read([str(Path(file).expanduser()) for file in _PIP_FILES])
    settings = dict(found["global"]) if found.has_section("global") else {}
    settings |= {key: value for key in _PIP if (value := os.environ.get(f"PIP_{key.upper().replace('-', '_')}"))}
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items() if key in _PIP)
