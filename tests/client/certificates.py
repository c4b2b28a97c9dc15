"""Certificates for tests: an authority, and keys signed by it."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


class Authority:
    """Signs certificates for 127.0.0.1. `pem` is its own certificate, as a file."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key.public_key(), authority=True)
        self.pem = folder / f"{name}.pem"
        self.pem.write_bytes(self.certificate.public_bytes(PEM))

    def issue(
        self,
        name: str,
        host: str = "127.0.0.1",
        password: str = "",
        days: float = 1,
        subject: x509.Name | None = None,
        file: str = "",
    ) -> Path:
        """A file with a new private key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._signed(subject, key.public_key(), host=host, days=days)
        hidden = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        path = self._folder / (file or f"{name}.pem")
        path.write_bytes(key.private_bytes(PEM, PKCS8, hidden) + certificate.public_bytes(PEM))
        return path

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        authority: bool = False,
        host: str = "",
        days: float = 1,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if host:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())
