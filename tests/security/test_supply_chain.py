"""SEC9: whatever is installed is pinned by hash; `make audit` and `make sbom` read the same files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENT = re.compile(r"^[A-Za-z0-9][\w.-]*.*$", re.MULTILINE)
HASHED = re.compile(r"^[A-Za-z0-9][\w.-]*==\S+(?: ; [^\n]+?)? \\\n    --hash=sha256:[0-9a-f]{64}", re.MULTILINE)


@pytest.mark.parametrize(
    ("lock", "fewest"),
    [
        ("requirements.lock", 20),
        ("requirements-image.lock", 20),
        ("requirements-traces.lock", 20),
        ("requirements-build.lock", 5),
        ("requirements-kubectl.lock", 20),
    ],
)
def test_sec9_every_requirement_has_one_version_and_a_hash(lock: str, fewest: int) -> None:
    """No range, no URL, and nothing that an index could swap."""
    text = (ROOT / lock).read_text()
    assert len(HASHED.findall(text)) == len(REQUIREMENT.findall(text)) > fewest


@pytest.mark.parametrize("file", ["Makefile", "Containerfile"])
def test_sec9_installing_from_a_lock_requires_the_hashes(file: str) -> None:
    """Wherever pip or uv reads a lock to install it."""
    text = (ROOT / file).read_text().replace("\\\n", " ")
    installs = [
        line
        for line in text.splitlines()
        if "install" in line and re.search(r"\.lock|\$\{LOCK\}", line) and " -r" in line
    ]
    assert installs and all("--require-hashes" in line for line in installs)
