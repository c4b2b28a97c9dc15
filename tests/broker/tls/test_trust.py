"""Whom a trust store makes trusted: as in Java, whoever has a certificate in it, and whom such one signed."""

from __future__ import annotations

import ssl
import struct
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, load_pem_private_key, pkcs12

from millstream.broker.tls.stores import TlsSettings, build
from millstream.settings.resolve import BrokerSettings
from tests.client.certificates import PEM, PKCS8, Authority


def self_signed(folder: Path, file: str) -> Path:
    """Key and certificate of a client that nobody else vouches for. All of them have the same subject."""
    (folder / file).mkdir()
    made = Authority(folder / file, "client")
    key = made._key.private_bytes(PEM, PKCS8, NoEncryption())
    made.pem.write_bytes(key + made.certificate.public_bytes(PEM))
    return made.pem


def broker_context(broker: Path, *trusted: Path) -> ssl.SSLContext:
    given = {
        "ssl.keystore.location": str(broker),
        "ssl.truststore.certificates": "\n".join(path.read_text() for path in trusted),
        "ssl.client.auth": "required",
    }
    return build(TlsSettings(BrokerSettings(given), "SSL")).context


def shake_hands(server: ssl.SSLContext, certificate: Path) -> None:
    """A whole handshake in memory. SSLError if one side refuses the other."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    while sides:
        for side in tuple(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass


def test_a_clients_own_certificate_in_the_store_is_enough(tmp_path: Path) -> None:
    """Also beside an older one with the same subject, as when its key is changed."""
    broker = Authority(tmp_path, "authority").issue("broker")
    old, new, other = (self_signed(tmp_path, name) for name in ("old", "new", "other"))
    context = broker_context(broker, old, new)
    shake_hands(context, old)
    shake_hands(context, new)
    with pytest.raises(ssl.SSLError, match="self-signed"):
        shake_hands(context, other)


def test_a_certificate_that_its_authority_signed_can_be_trusted_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    broker, alice, bob = (authority.issue(name) for name in ("broker", "alice", "bob"))
    context = broker_context(broker, alice)
    shake_hands(context, alice)
    with pytest.raises(ssl.SSLError, match="unable to get local issuer"):
        shake_hands(context, bob)


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def jks_store(chain: list[x509.Certificate], trusted: list[x509.Certificate]) -> bytes:
    """One private key, under a password that nobody knows, and trusted certificates."""

    def entry(kind: int, content: bytes) -> bytes:
        return struct.pack(">iH1sq", kind, 1, b"x", 0) + content

    def certificate(one: x509.Certificate) -> bytes:
        der = one.public_bytes(Encoding.DER)
        return struct.pack(">H5si", 5, b"X.509", len(der)) + der

    key = struct.pack(">i4si", 4, b"????", len(chain)) + b"".join(map(certificate, chain))
    entries = [entry(1, key), *(entry(2, certificate(one)) for one in trusted)]
    return struct.pack(">Iii", 0xFEEDFEED, 2, len(entries)) + b"".join(entries) + bytes(20)


def pkcs12_store(key_file: Path, chain: list[x509.Certificate], trusted: list[x509.Certificate]) -> bytes:
    key = load_pem_private_key(key_file.read_bytes(), None)
    others = [*chain[1:], *trusted]
    return pkcs12.serialize_key_and_certificates(b"x", key, chain[0], others, NoEncryption())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_a_key_in_a_trust_store_does_not_make_its_authority_trusted(tmp_path: Path, kind: str) -> None:
    """As in Java: its own certificate counts, and what stands in the store as trusted."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    authority, other = Authority(tmp_path / "a", "signer"), Authority(tmp_path / "b", "other")
    broker, alice, bob = (authority.issue(name) for name in ("broker", "alice", "bob"))
    carol = other.issue("carol")

    def context(*trusted: x509.Certificate) -> ssl.SSLContext:
        chain = [read(alice), authority.certificate]
        store = tmp_path / "store"
        store.write_bytes(
            jks_store(chain, list(trusted)) if kind == "jks" else pkcs12_store(alice, chain, list(trusted))
        )
        given = {
            "ssl.keystore.location": str(broker),
            "ssl.truststore.location": str(store),
            "ssl.client.auth": "required",
        }
        return build(TlsSettings(BrokerSettings(given), "SSL")).context

    shake_hands(context(), alice)
    shake_hands(context(other.certificate), carol)
    with pytest.raises(ssl.SSLError, match="unable to get local issuer"):
        shake_hands(context(other.certificate), bob)
    # Unless it is an entry of its own, too.
    shake_hands(context(authority.certificate), bob)


def test_the_brokers_client_auth_is_for_listeners_without_sasl(tmp_path: Path) -> None:
    """As in Kafka: those who log in by SASL are asked for a certificate by the listener's own
    setting only."""
    authority = Authority(tmp_path, "authority")
    given = {
        "ssl.keystore.location": str(authority.issue("broker")),
        "ssl.truststore.location": str(authority.pem),
        "ssl.client.auth": "required",
    }
    asked = ssl.CERT_REQUIRED
    assert build(TlsSettings(BrokerSettings(given), "MUTUAL", "SSL")).context.verify_mode == asked
    login = build(TlsSettings(BrokerSettings(given), "LOGIN", "SASL_SSL"))
    assert login.context.verify_mode == ssl.CERT_NONE
    assert "listener.name.login.ssl.client.auth" in login.warnings[0]
    both = build(
        TlsSettings(
            BrokerSettings({**given, "listener.name.login.ssl.client.auth": "required"}), "LOGIN", "SASL_SSL"
        )
    )
    assert (both.context.verify_mode, both.warnings) == (asked, ())
