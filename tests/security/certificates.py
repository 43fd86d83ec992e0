"""Certificates made by the openssl program: authorities, and what they sign."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


def openssl(*arguments: str | Path) -> None:
    """Run openssl; it must end well."""
    ended = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@dataclass(frozen=True)
class Certificate:
    """Two PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA with files in a folder; its name is the beginning of theirs."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.certificate = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        arguments = ("-x509", "-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2")
        openssl("req", *arguments, "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate)

    def sign(
        self, name: str, subject: str, usage: str = "clientAuth", days: int = 1, host: str = "extender"
    ) -> Certificate:
        """Return a new certificate for 127.0.0.1 and a host; one that is good for -1 days expired yesterday."""
        made = Certificate(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName=IP:127.0.0.1,DNS:{host}\nextendedKeyUsage={usage}\n")
        new_key = ("-new", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
        openssl("req", *new_key, "-subj", subject, "-keyout", made.key, "-out", request)
        issuer = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", str(days))
        openssl("x509", "-req", "-in", request, *issuer, "-extfile", extensions, "-out", made.certificate)
        return made
