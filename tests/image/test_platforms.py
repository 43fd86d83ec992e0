"""The image can be had for arm64, which Grace nodes are: each distribution in it has a wheel for that, pinned by hash."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.image import base

# Debian 12 has this glibc, and newer ones run what is made for it.
ARM64 = "aarch64-manylinux_2_36"
ELF_AARCH64 = b"\xb7\x00"
"""At offset 18 of a program or library."""
UV = Path(sysconfig.get_path("scripts")) / "uv"

pytestmark = pytest.mark.slow


def unpack(lock: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Fetch the wheels of a lock for arm64, compare their hashes and unpack them, as pip does where the image is built."""
    strict = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--target", str(target)]
    chosen = ["--python-platform", ARM64, "--python", sys.executable, "--python-version", "3.11"]
    command = [str(UV), "pip", "install", "--quiet", *strict, *chosen, "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Failed to fetch" in done.stderr:
        pytest.skip("the package index is out of reach")
    return done


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-build.lock"])
def test_every_pin_has_a_wheel_for_arm64(tmp_path: Path, lock: str) -> None:
    """Nothing is compiled where the image is built, and what is compiled already is for that machine."""
    done = unpack(base.ROOT / lock, tmp_path)
    assert done.returncode == 0, done.stderr
    libraries = [file.read_bytes()[18:20] for file in tmp_path.rglob("*.so")]
    assert len(libraries) > 1
    assert set(libraries) == {ELF_AARCH64}


def test_a_hash_that_no_wheel_has_is_noticed(tmp_path: Path) -> None:
    """Or the test above would show nothing of hashes."""
    lock = tmp_path / "lock"
    lock.write_text(f"idna==3.20 --hash=sha256:{'0' * 64}\n")
    done = unpack(lock, tmp_path / "target")
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()
