"""What TLS offers, looked at from outside as scanners do: every version and every suite is tried, on the
broker's listener and on that of an HTTP service."""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker
from tests.client.certificates import Authority
from tests.console.console_client import RunningConsole

# Without forward secrecy, without authentication, broken, or with a hash that is.
WEAK = (
    "NULL",
    "EXP",
    "RC4",
    "DES",
    "MD5",
    "anon",
    "ADH",
    "AECDH",
    "PSK",
    "SRP",
    "IDEA",
    "SEED",
    "CAMELLIA",
    "ARIA",
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def addresses(authority: Authority) -> Iterator[dict[str, tuple[str, int]]]:
    key = authority.issue("server")
    listener = {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "ssl.keystore.location": key}
    with Broker({**listener, "ssl.keystore.type": "PEM"}) as broker:
        https = {"listeners": "https://127.0.0.1:0", "ssl.keystore.location": key}
        with RunningConsole("127.0.0.1:1", https, str(authority.pem)) as console:
            yield {
                "broker": (broker.host, broker.port),
                "https": ("127.0.0.1", int(console.url.rpartition(":")[2])),
            }


def hello(
    address: tuple[str, int], authority: Authority, version: ssl.TLSVersion, ciphers: str
) -> str | None:
    """The suite that the server chooses of these; None if it refuses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.pem)
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the versions that must be refused
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(address, timeout=120) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
                assert tls.compression() is None
                found = tls.cipher()
                return found[0] if found else None
        except (ssl.SSLError, ConnectionError):
            return None


@pytest.mark.parametrize("server", ["broker", "https"])
def test_versions(addresses: dict[str, tuple[str, int]], authority: Authority, server: str) -> None:
    address, everything = addresses[server], "ALL:COMPLEMENTOFALL"
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        assert hello(address, authority, version, everything) is None, version
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        assert hello(address, authority, version, everything) is not None, version


@pytest.mark.parametrize("server", ["broker", "https"])
def test_suites(addresses: dict[str, tuple[str, int]], authority: Authority, server: str) -> None:
    """Only suites with forward secrecy and nothing that is broken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    known = [one["name"] for one in context.get_ciphers() if one["protocol"] != "TLSv1.3"]
    assert len(known) > 50
    taken = [
        name
        for name in known
        if hello(addresses[server], authority, ssl.TLSVersion.TLSv1_2, name) is not None
    ]
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" in taken
    for name in taken:
        assert name.startswith(("ECDHE-", "DHE-")), name
        assert not any(weak in name for weak in WEAK) and not name.endswith("-SHA"), name


def test_nothing_but_tls_is_answered(addresses: dict[str, tuple[str, int]], tmp_path: Path) -> None:
    """Neither listener falls back to clear text."""
    for address in addresses.values():
        with socket.create_connection(address, timeout=120) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            try:
                while data := plain.recv(4096):
                    answer += data
            except ConnectionError:
                pass
            assert b"HTTP" not in answer
