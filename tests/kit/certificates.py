"""Certificates for tests of TLS, made on the spot by ``openssl``: an authority, and what it signs for this machine.

Keys are in PKCS #8, which RocketMQ's Java client and broker want.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key, PEM files."""

    certificate: Path
    key: Path


class Authority:
    """An authority that nobody but the test trusts; ``certificate`` is what trusting it takes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._own = Certificate(directory / "ca.pem", directory / "ca.key")
        self._openssl("-subj", "/CN=test authority", out=self._own)

    @property
    def certificate(self) -> Path:
        """Its own certificate."""
        return self._own.certificate

    def issue(self, name: str) -> Certificate:
        """One for a process on this machine, good as server's and as client's."""
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed = ("-CA", str(self._own.certificate), "-CAkey", str(self._own.key))
        host = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
        ends = ("-addext", "basicConstraints=critical,CA:FALSE")
        self._openssl("-subj", f"/CN={name}", *signed, *host, *ends, out=made)
        return made

    def _openssl(self, *options: str, out: Certificate) -> None:
        new = (
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        )
        files = ("-keyout", str(out.key), "-out", str(out.certificate))
        done = subprocess.run(("openssl", *new, *options, *files), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"openssl cannot make {out.certificate.name}:\n{done.stderr[-2000:]}")
