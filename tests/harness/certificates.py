"""Certificates made for a test by openssl: an authority, a broker, a client, and a stranger."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from infra.localbroker import LOOPBACK

#: The common name of the certificate that the authority gives to the client.
CLIENT = "warehouse"


@dataclass(frozen=True)
class Certificates:
    """The files, all PEM; keys in PKCS#8."""

    #: The authority that the broker's and the client's certificates are from.
    authority: Path
    #: The broker's key, followed by its certificate.
    broker: Path
    certificate: Path
    key: Path
    #: Another authority, which knows none of these.
    stranger: Path


def make_certificates(directory: Path) -> Certificates:
    """Makes all of them; takes a tenth of a second."""
    authority, authority_key = _made(directory, "authority")
    stranger, _ = _made(directory, "stranger")
    signed = "-CA", str(authority), "-CAkey", str(authority_key)
    certificate, key = _made(directory, CLIENT, *signed)
    names = "-addext", f"subjectAltName=IP:{LOOPBACK}"
    broker, broker_key = _made(directory, "broker", *signed, *names)
    keystore = directory / "keystore.pem"
    keystore.write_text(broker_key.read_text() + broker.read_text())
    return Certificates(authority, keystore, certificate, key, stranger)


def _made(directory: Path, name: str, *options: str) -> tuple[Path, Path]:
    """A certificate and its key; self-signed unless the options name an authority."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    curve = "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"
    command = ["openssl", "req", "-x509", *curve, "-subj", f"/CN={name}", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files, *options], check=True, capture_output=True)
    return certificate, key
