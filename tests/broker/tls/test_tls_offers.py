"""What TLS offers, looked at from outside as scanners do: every version and every suite is tried, and what
known attacks need, on the broker's listener and on that of an HTTP service."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.testing import Broker
from tests.client.certificates import Authority
from tests.console.console_client import RunningConsole
from tests.support.client_hello import (
    ECDHE_ECDSA,
    ECDSA_SHA1,
    FALLBACK,
    HEARTBEAT,
    INAPPROPRIATE_FALLBACK,
    P256,
    RENEGOTIATION_INFO,
    Alert,
    ClientHello,
    ServerHello,
    answer_to,
)

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


# What was registered before P-256: binary fields, and curves of less strength.
WEAK_GROUPS = tuple(range(1, 23))


@pytest.mark.parametrize("server", ["broker", "https"])
def test_what_attacks_need_is_not_there(addresses: dict[str, tuple[str, int]], server: str) -> None:
    """Heartbleed, CRIME, the renegotiation of 2009, POODLE, DROWN, Logjam's curves, SHA-1 signatures."""
    address = addresses[server]

    def ask(**changes: object) -> ServerHello | Alert | None:
        return answer_to(address, ClientHello(**changes).packed())  # type: ignore[arg-type]

    def refused(**changes: object) -> bool:
        """By an alert, or, as asyncio has it, by hanging up."""
        return not isinstance(ask(**changes), ServerHello)

    usual = ask(compressions=(1, 0), more={HEARTBEAT: b"\1"})
    assert isinstance(usual, ServerHello)
    assert usual.compression == 0
    assert HEARTBEAT not in usual.extensions
    assert RENEGOTIATION_INFO in usual.extensions
    assert ask(suites=(*ECDHE_ECDSA, FALLBACK)) in (Alert(INAPPROPRIATE_FALLBACK), None)
    for version in (0x0300, 0x0301, 0x0302):
        assert refused(version=version)
    sslv2 = struct.pack(">HBHHHH", 0x8000 | 12, 1, 2, 3, 0, 0) + b"\x07\0\xc0"
    assert not isinstance(answer_to(address, sslv2), ServerHello)
    assert refused(groups=WEAK_GROUPS)
    assert isinstance(ask(groups=(P256,)), ServerHello)
    assert refused(signatures=(ECDSA_SHA1,))


@pytest.mark.parametrize("server", ["broker", "https"])
def test_the_server_does_not_follow_a_weak_preference(
    addresses: dict[str, tuple[str, int]], server: str
) -> None:
    """A client that names static keys, CBC and RC4 first gets the one good suite that it names last."""
    poor = (0x0004, 0x0005, 0x000A, 0x002F, 0x0035, 0x009C, 0xC009, 0xC00A)
    found = answer_to(addresses[server], ClientHello(suites=(*poor, ECDHE_ECDSA[0])).packed())
    assert isinstance(found, ServerHello)
    assert found.suite == ECDHE_ECDSA[0]
    assert not isinstance(answer_to(addresses[server], ClientHello(suites=poor).packed()), ServerHello)


@pytest.mark.parametrize("server", ["broker", "https"])
def test_clients_do_not_renegotiate(
    addresses: dict[str, tuple[str, int]], authority: Authority, server: str
) -> None:
    """Each would cost the server a handshake, without a new connection that limits count."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("install openssl")
    host, port = addresses[server]
    words = ["s_client", "-connect", f"{host}:{port}", "-tls1_2", "-CAfile", str(authority.pem)]
    with subprocess.Popen(
        [openssl, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        out = b""
        while b"Verify return code" not in out:  # what it reads before that is no command
            out += (line := client.stdout.readline())
            assert line, out
        client.stdin.write(b"R\n")  # handshake again
        client.stdin.flush()
        while line := client.stdout.readline():
            out += line
            if b"RENEGOTIATING" in line:
                client.stdin.close()
    assert b"Secure Renegotiation IS supported" in out
    assert b"RENEGOTIATING" in out
    assert b"no renegotiation" in out.lower() or b"error" in out.lower(), out
