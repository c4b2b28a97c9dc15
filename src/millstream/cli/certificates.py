"""An authority of one's own and certificates signed by it: ECDSA P-256, by `cryptography` (the extra
`tls`)."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from millstream.cli.errors import CommandFailed


def make_certificates(folder: Path, hosts: list[str], client: str, days: int) -> None:
    """ca.pem, ca.key, broker.pem (key and certificate for these hosts) and client.pem (key and certificate of
    a user, for listeners with ssl.client.auth)."""
    authority = Authority.new(days)
    write(folder / "ca.key", authority.private)
    write(folder / "ca.pem", authority.certificate)
    write(folder / "broker.pem", authority.server(hosts, days))
    write(folder / "client.pem", authority.client(client, days))


def make_client_certificate(folder: Path, name: str, days: int) -> Path:
    """NAME.pem, signed by the authority in the folder. CommandFailed if there is none, or the file is there
    already."""
    path = folder / f"{name}.pem"
    if path.exists():
        raise CommandFailed(f"{path} is there already")
    try:
        authority = Authority.read((folder / "ca.key").read_bytes(), (folder / "ca.pem").read_bytes())
        write(path, authority.client(name, days))
    except OSError as error:
        raise CommandFailed(
            f"{error.filename or folder}: {(error.strerror or str(error)).lower()}; an authority (ca.key, "
            "ca.pem) is made by `millstream secure init` and `millstream up --secure`"
        ) from None
    except ValueError as error:
        raise CommandFailed(f"the authority in {folder} cannot be used: {error}") from None
    return path


class Authority:
    """`private` and `certificate` are its own, in PEM."""

    def __init__(self, key: Any, name: Any, certificate: bytes = b"") -> None:
        self._key = key
        self._name = name
        self.certificate = certificate

    @classmethod
    def new(cls, days: int) -> "Authority":
        x509, ec, _ = _library()
        made = cls(ec.generate_private_key(ec.SECP256R1()), _name(x509, "Millstream authority"))
        ca_only = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        extensions = [(x509.BasicConstraints(True, 0), True), (ca_only, True)]
        made.certificate = made._signed(made._name, made._key, extensions, days)
        return made

    @classmethod
    def read(cls, private: bytes, certificate: bytes) -> "Authority":
        """ValueError for what is no key, or no certificate."""
        x509, _, serialization = _library()
        key = serialization.load_pem_private_key(private, None)
        return cls(key, x509.load_pem_x509_certificate(certificate).subject, certificate)

    @property
    def private(self) -> bytes:
        return _private(self._key)

    def server(self, hosts: list[str], days: int) -> bytes:
        """Key and certificate for these hosts. Brokers are clients, too."""
        x509, _, _ = _library()
        names: list[Any] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        purposes = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
        extensions = [(x509.SubjectAlternativeName(names), False), (x509.ExtendedKeyUsage(purposes), False)]
        return self._leaf(hosts[0], extensions, days)

    def client(self, name: str, days: int) -> bytes:
        """Key and certificate of a user."""
        x509, _, _ = _library()
        purpose = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._leaf(name, [(purpose, False)], days)

    def _leaf(self, name: str, extensions: list[tuple[Any, bool]], days: int) -> bytes:
        x509, ec, _ = _library()
        key = ec.generate_private_key(ec.SECP256R1())
        extensions = [(x509.BasicConstraints(False, None), True), *extensions]
        return _private(key) + self._signed(_name(x509, name), key, extensions, days)

    def _signed(self, subject: Any, key: Any, extensions: list[tuple[Any, bool]], days: int) -> bytes:
        x509, _, serialization = _library()
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        made: bytes = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return made


def _library() -> tuple[Any, Any, Any]:
    """x509 (with its object identifiers), elliptic curves, serialization."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise CommandFailed(
            "making certificates needs the extra tls: pip install 'millstream[tls]'"
        ) from None
    return x509, ec, serialization


def _name(x509: Any, text: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def _private(key: Any) -> bytes:
    _, _, serialization = _library()
    found: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return found


def write(path: Path, content: bytes) -> None:
    """For this user's eyes only."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
