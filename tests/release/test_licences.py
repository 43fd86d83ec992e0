"""What people get from us states its licence, and each allows us to pass it on."""

import re
from pathlib import Path

import pytest

from tests.release.licences import licences

ROOT = Path(__file__).resolve().parents[2]
PERMISSIVE = re.compile(
    r"(?:MIT|ISC|0BSD|PSF|BSD|Apache|(?:\d-Clause )?BSD)(?:[- ](?:\d\.\d|\d-Clause|License|Software License))*"
)
FILE_BY_FILE = {"certifi": "MPL-2.0"}
"""Copyleft of single files, which we pass on unchanged."""


@pytest.mark.parametrize("lock", ["requirements-image.lock", "requirements-traces.lock", "requirements-kubectl.lock"])
def test_each_distribution_that_we_pass_on_has_a_licence_that_allows_it(lock: str) -> None:
    """Image, image with traces, and krew's archives."""
    listed = licences(ROOT / lock)
    assert len(listed) == len(re.findall(r"^\S+==", (ROOT / lock).read_text(), re.MULTILINE))
    unknown = [
        (name, licence)
        for name, _, licence in listed
        if FILE_BY_FILE.get(name) != licence
        and not all(PERMISSIVE.fullmatch(part) for part in re.split(r" (?:AND|OR) ", licence))
    ]
    assert unknown == []
