"""Whom a trust store makes trusted: as in Java, whoever has a certificate in it, and whom such one signed."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import NoEncryption

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
