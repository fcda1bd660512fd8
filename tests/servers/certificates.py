"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path


def authority(folder: Path, name: str) -> Pair:
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-keyout", pair.key, "-out", pair.certificate),
    )
    return pair


def signed(folder: Path, name: str, by: Pair) -> Pair:
    """A certificate for localhost and 127.0.0.1."""
    pair, request, extensions = Pair(folder / f"{name}.pem", folder / f"{name}.key"), folder / "r.csr", folder / "e.cnf"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    _openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", pair.key, "-out", request),
    )
    _openssl(
        *("x509", "-req", "-in", request, "-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial", "-days", "2"),
        *("-extfile", extensions, "-out", pair.certificate),
    )
    return pair


def locked(key: Path, password: str) -> Path:
    """The same key behind a password, as openssl does it unless told otherwise."""
    found = key.with_suffix(".locked")
    _openssl("pkcs8", "-topk8", "-in", key, "-out", found, "-passout", f"pass:{password}")
    return found


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
