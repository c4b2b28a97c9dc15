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
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise CommandFailed(
            "making certificates needs the extra tls: pip install 'millstream[tls]'"
        ) from None

    pem = serialization.Encoding.PEM

    def private(key: Any) -> bytes:
        found: bytes = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return found

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    now = datetime.datetime.now(datetime.UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = name("Millstream authority")

    def signed(subject: x509.Name, key: Any, extensions: list[tuple[Any, bool]]) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(pem)

    ca_only = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    write(folder / "ca.key", private(ca_key))
    write(
        folder / "ca.pem",
        signed(ca_name, ca_key, [(x509.BasicConstraints(True, 0), True), (ca_only, True)]),
    )
    names: list[Any] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    leaf = (x509.BasicConstraints(False, None), True)
    # Brokers are clients too.
    usage_server = [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]
    for file, subject, more in (
        (
            "broker.pem",
            hosts[0],
            [(x509.SubjectAlternativeName(names), False), (x509.ExtendedKeyUsage(usage_server), False)],
        ),
        ("client.pem", client, [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)]),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        write(folder / file, private(key) + signed(name(subject), key, [leaf, *more]))


def write(path: Path, content: bytes) -> None:
    """For this user's eyes only."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)
