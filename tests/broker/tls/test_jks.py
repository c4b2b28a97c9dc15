"""JKS stores that keytool wrote (vectors/keys.jks, vectors/trust.jks; the commands stand below), and broken
ones.

keytool -genkeypair -alias broker -keyalg EC -groupname secp256r1 -dname "CN=broker,O=Mills" -validity 36500
    -storetype JKS -keystore keys.jks -storepass store-word -keypass key-word
keytool -importcert -noprompt -alias first -file (its certificate) -storetype JKS -keystore trust.jks
    -storepass store-word
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from millstream.broker.tls.jks import read_jks
from millstream.broker.tls.stores import TlsSettings, build
from millstream.settings.resolve import BrokerSettings
from millstream.settings.values import InvalidSetting

VECTORS = Path(__file__).parent / "vectors"
KEYS, TRUST = VECTORS / "keys.jks", VECTORS / "trust.jks"


def test_key_and_certificate_fit() -> None:
    pem = read_jks(KEYS.read_bytes(), "store-word", "key-word").encode()
    certificate = x509.load_pem_x509_certificate(pem)
    assert certificate.subject.rfc4514_string() == "CN=broker,O=Mills"
    assert load_pem_private_key(pem, None).public_key() == certificate.public_key()


@pytest.mark.parametrize("password", ["store-word", ""])
def test_trusted_certificates_need_no_password(password: str) -> None:
    trusted = x509.load_pem_x509_certificates(read_jks(TRUST.read_bytes(), password, "").encode())
    keys = read_jks(KEYS.read_bytes(), "store-word", "key-word").encode()
    assert trusted == [x509.load_pem_x509_certificate(keys)]


@pytest.mark.parametrize(
    ("password", "key_password", "words"),
    [
        ("wrong", "key-word", "its password is wrong"),
        ("store-word", "wrong", "does not open its private key"),
        ("store-word", "", "does not open its private key"),  # the store's password is tried
    ],
)
def test_wrong_passwords(password: str, key_password: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_jks(KEYS.read_bytes(), password, key_password)


def test_a_store_cut_at_any_byte_is_refused() -> None:
    content = KEYS.read_bytes()
    for end in range(len(content)):
        with pytest.raises(ValueError, match=r"changed|cut off|damaged|not a JKS|not in the form"):
            read_jks(content[:end], "store-word", "key-word")
    # without a password no digest stands guard; the reader itself must notice
    for end in range(len(content) - 20):
        with pytest.raises(ValueError, match=r"."):
            read_jks(content[:end], "", "key-word")


def test_a_listener_takes_jks_as_kafka_does() -> None:
    given = {
        "ssl.keystore.location": str(KEYS),
        "ssl.keystore.password": "store-word",
        "ssl.key.password": "key-word",
        "ssl.truststore.location": str(TRUST),
        "ssl.truststore.password": "store-word",
        "ssl.client.auth": "required",
    }
    assert build(TlsSettings(BrokerSettings(given), "SSL")).context.cert_store_stats()["x509"] == 1
    with pytest.raises(InvalidSetting, match="its password is wrong") as refused:
        build(TlsSettings(BrokerSettings({**given, "ssl.keystore.password": "guess-me"}), "SSL"))
    assert "guess-me" not in str(refused.value)
