# ruff: noqa: S106
"""TLS listeners of a whole broker: where keys come from, who a client is, new certificates, hostile
clients."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from millstream.client import ClientConfig, Cluster
from millstream.testing import Broker, BrokerFailed
from millstream.wire.errors import KafkaError
from tests.client.certificates import Authority
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def settings(pem: Path | str, **more: object) -> dict[str, object]:
    return {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": pem,
        "ssl.keystore.type": "PEM",
        "millstream.log.level": "debug",
        "connection.failed.authentication.delay.ms": 0,
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def properties(authority: Authority, certificate: Path | None = None) -> dict[str, str]:
    found = {"security.protocol": "SSL", "ssl.ca.location": str(authority.pem)}
    if certificate is not None:
        found |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
    return found


def topics(broker: Broker, given: dict[str, str]) -> None:
    """Connect, and ask for something."""
    with Cluster(
        ClientConfig.of(broker.bootstrap_servers, {**given, "request.timeout.ms": "5000"})
    ) as cluster:
        cluster.refresh([])


def test_records_of_every_size_through_confluent_kafka(authority: Authority) -> None:
    with Broker(settings(authority.issue("broker"), message__max__bytes=4_000_000)) as broker:
        conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, **properties(authority)}
        producer = Producer({**conf, "message.max.bytes": 4_000_000, "linger.ms": 0})
        values = [os.urandom(size) for size in (1, 100, 16_000, 16_384, 262_144, 1_000_000, 3_000_000) * 3]
        for value in values:
            producer.produce("t", value)
        assert producer.flush(60) == 0
        consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        got: list[bytes] = []
        wait_until(lambda: _poll(consumer, got) >= len(values), patience=60)
        assert got == values
        consumer.close()


def _poll(consumer: Consumer, got: list[bytes]) -> int:
    message = consumer.poll(0.5)
    if message is not None and message.error() is None:
        value = message.value()
        assert isinstance(value, bytes)
        got.append(value)
    return len(got)


# ---------------------------------------------------------------------- where keys come from


def _text(authority: Authority, folder: Path) -> dict[str, object]:
    key, certificate = authority.issue("broker", password="secret").read_text().split("-----BEGIN CERT", 1)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.replace("\n", "\\n"),
        "ssl.keystore.certificate.chain": ("-----BEGIN CERT" + certificate).replace("\n", "\\n"),
        "ssl.key.password": "secret",
    }


def _pkcs12(authority: Authority, folder: Path) -> dict[str, object]:
    pem = authority.issue("broker").read_bytes()
    key: Any = load_pem_private_key(pem, None)
    store = pkcs12.serialize_key_and_certificates(
        b"broker",
        key,
        x509.load_pem_x509_certificate(pem),
        [authority.certificate],
        BestAvailableEncryption(b"pw"),
    )
    (folder / "broker.p12").write_bytes(store)
    return {
        "ssl.keystore.location": folder / "broker.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": "pw",
    }


def _prefixed(authority: Authority, folder: Path) -> dict[str, object]:
    return {
        "ssl.keystore.location": "/no/such/file",
        "listener.name.ssl.ssl.keystore.location": authority.issue("broker"),
        "listener.name.ssl.ssl.keystore.type": "PEM",
    }


@pytest.mark.parametrize("made", [_text, _pkcs12, _prefixed])
def test_keys_from(
    authority: Authority, tmp_path: Path, made: Callable[[Authority, Path], dict[str, object]]
) -> None:
    given = made(authority, tmp_path)
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    command = [sys.executable, "-m", "millstream.testing._child", "broker", "--config", str(file)]
    with Broker({"listeners": "SSL://127.0.0.1:0"}, command=command) as broker:
        topics(broker, properties(authority))


def test_a_listener_of_its_own_beside_a_plain_one(authority: Authority) -> None:
    given = settings(
        authority.issue("broker"),
        listeners="IN://127.0.0.1:0,OUT://127.0.0.1:0",
        listener__security__protocol__map="IN:SSL,OUT:PLAINTEXT",
        inter__broker__listener__name="OUT",
    )
    with Broker(given) as broker:
        topics(broker, properties(authority))
        port = int(broker.log.split("OUT://127.0.0.1:")[1].split()[0])
        with Cluster(ClientConfig.of(f"127.0.0.1:{port}")) as cluster:
            cluster.refresh([])


def _not_fitting(authority: Authority, folder: Path) -> Path:
    key = authority.issue("one").read_text().split("-----BEGIN CERT")[0]
    certificate = authority.issue("two").read_text().split("-----BEGIN CERT")[1]
    (folder / "mixed.pem").write_text(f"{key}-----BEGIN CERT{certificate}")
    return folder / "mixed.pem"


def _jceks(authority: Authority, folder: Path) -> Path:
    (folder / "store.jks").write_bytes(b"\xce\xce\xce\xce" + bytes(100))
    return folder / "store.jks"


@pytest.mark.parametrize(
    ("path", "more", "words"),
    [
        (lambda a, f: "", {}, "needs a private key with certificates"),
        (lambda a, f: f / "nothing.pem", {}, "no such file"),
        (_not_fitting, {}, "The private key does not fit"),
        (_jceks, {"ssl.keystore.type": "JCEKS"}, "keytool -importkeystore -srckeystore"),
        (lambda a, f: a.issue("locked", password="secret"), {}, "ssl.key.password is wrong or missing"),
        (
            lambda a, f: a.issue("locked", password="secret"),
            {"ssl.key.password": "guess-me"},
            "ssl.key.password",
        ),
        (lambda a, f: a.pem, {}, "no private key"),
        (lambda a, f: a.issue("b"), {"ssl.client.auth": "required"}, "Whose certificates count"),
        (lambda a, f: a.issue("b"), {"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.2 and TLSv1.3 are served"),
        (lambda a, f: a.issue("b"), {"ssl.cipher.suites": "NO_SUCH"}, "knows none of them"),
        (lambda a, f: a.issue("b"), {"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules"),
    ],
)
def test_what_cannot_be_used_is_said_at_start(
    authority: Authority, tmp_path: Path, path: Any, more: dict[str, object], words: str
) -> None:
    with pytest.raises(BrokerFailed) as failed, Broker({**settings(path(authority, tmp_path)), **more}):
        pass
    assert words in str(failed.value)
    assert "guess-me" not in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_an_expired_certificate_is_said_and_does_not_stop_the_broker(authority: Authority) -> None:
    with Broker(settings(authority.issue("old", days=-1))) as broker:
        wait_until(lambda: "has expired" in broker.log)
        with pytest.raises(KafkaError, match="expired"):
            topics(broker, properties(authority))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_and_ciphers(authority: Authority, version: ssl.TLSVersion) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    with Broker(settings(authority.issue("broker"), ssl__cipher__suites=suite)) as broker:
        context = ssl.create_default_context(cafile=str(authority.pem))
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection((broker.host, broker.port)) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
        ):
            cipher = tls.cipher()
            assert cipher is not None
            if version is ssl.TLSVersion.TLSv1_2:
                assert cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
            assert tls.compression() is None


# ---------------------------------------------------------------------- who a client is


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_a_client_certificate_says_who_it_is(authority: Authority, auth: str, tmp_path: Path) -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Org, Inc."),
            x509.NameAttribute(NameOID.COMMON_NAME, "Ann"),
        ]
    )
    ann = authority.issue("ann", subject=name)
    stranger = Authority(tmp_path, "stranger").issue("mallory")
    given = settings(
        authority.issue("broker"),
        ssl__client__auth=auth,
        ssl__truststore__location=authority.pem,
        ssl__truststore__type="PEM",
        ssl__principal__mapping__rules="RULE:^CN=(.*?),O=.*$/$1/L,DEFAULT",
    )
    with Broker(given) as broker:
        topics(broker, properties(authority, ann))
        assert "is User:ann" in broker.log
        topics(broker, properties(authority, authority.issue("Bob")))
        assert "is User:CN=Bob" in broker.log
        with pytest.raises(KafkaError):
            topics(broker, properties(authority, stranger))
        wait_until(lambda: "the client's certificate is not trusted" in broker.log)
        if auth == "required":
            with pytest.raises(KafkaError):
                topics(broker, properties(authority))
        else:
            topics(broker, properties(authority))
        assert "Traceback" not in broker.log


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_is_refused_is_told_why(authority: Authority, version: ssl.TLSVersion) -> None:
    """Also a client that sends on before it hears of it, as all do in TLS 1.3."""
    trust: dict[str, Any] = {"ssl__truststore__location": authority.pem, "ssl__truststore__type": "PEM"}
    with Broker(settings(authority.issue("broker"), ssl__client__auth="required", **trust)) as broker:
        context = ssl.create_default_context(cafile=str(authority.pem))
        context.minimum_version = context.maximum_version = version
        for _ in range(20):
            with (
                socket.create_connection((broker.host, broker.port)) as sock,
                pytest.raises(ssl.SSLError, match=r"(?i)certificate.required|handshake.failure"),
                context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
            ):
                tls.sendall(bytes(2000))
                while tls.recv(100):
                    pass


def test_mutual_tls_with_confluent_kafka(authority: Authority) -> None:
    given = settings(
        authority.issue("broker"), ssl__client__auth="required", ssl__truststore__location=authority.pem
    )
    with Broker(given) as broker:
        conf = {"bootstrap.servers": broker.bootstrap_servers, **properties(authority, authority.issue("rd"))}
        assert AdminClient(conf).list_topics(timeout=20).brokers
        assert "is User:CN=rd" in broker.log


# ---------------------------------------------------------------------- new certificates


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Authority, Path, Broker]]:
    authority = Authority(tmp_path)
    pem = authority.issue("broker", days=30)
    more: dict[str, Any] = {"millstream__tls__reload__ms": 50}
    with Broker(settings(pem, listener__name__ssl__ssl__keystore__location=pem, **more)) as broker:
        yield authority, pem, broker


def _serial(broker: Broker, authority: Authority) -> int:
    pem = ssl.get_server_certificate((broker.host, broker.port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def _replace(path: Path, by: Path) -> None:
    os.replace(by, path)  # as those who renew certificates do it


def test_a_changed_file_is_used_and_open_connections_live_on(running: tuple[Authority, Path, Broker]) -> None:
    authority, pem, broker = running
    before = _serial(broker, authority)
    with Cluster(ClientConfig.of(broker.bootstrap_servers, properties(authority))) as cluster:
        cluster.refresh([])
        _replace(pem, authority.issue("broker", file="new.pem", days=60))
        wait_until(lambda: _serial(broker, authority) != before)
        cluster.refresh([])
    topics(broker, properties(authority))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda a: a.issue("impostor", file="new.pem"), "DistinguishedName does not match"),
        (lambda a: a.issue("broker", host="127.0.0.9", file="new.pem"), "SubjectAltNames do not match"),
        (lambda a: a.issue("broker", days=-1, file="new.pem"), "has expired"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    running: tuple[Authority, Path, Broker], made: Callable[[Authority], Path], words: str
) -> None:
    authority, pem, broker = running
    before = _serial(broker, authority)
    _replace(pem, made(authority))
    wait_until(lambda: words in broker.log)
    assert _serial(broker, authority) == before
    topics(broker, properties(authority))
    assert broker.log.count(words) == 1  # not again and again


def test_certificates_change_under_load_and_no_client_notices(
    running: tuple[Authority, Path, Broker],
) -> None:
    authority, pem, broker = running
    errors: list[object] = []
    conf: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, **properties(authority)}
    producer = Producer({**conf, "linger.ms": 0})
    for _ in range(8):
        before = _serial(broker, authority)
        _replace(pem, authority.issue("broker", file="new.pem", days=60))

        def changed(before: int = before) -> bool:
            producer.produce("t", bytes(50_000), on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
            topics(broker, properties(authority))
            return _serial(broker, authority) != before

        wait_until(changed)
    assert producer.flush(30) == 0
    assert errors and not any(errors)


def test_half_a_file_is_refused_and_the_whole_one_used(running: tuple[Authority, Path, Broker]) -> None:
    authority, pem, broker = running
    before = _serial(broker, authority)
    whole = authority.issue("broker", file="new.pem").read_bytes()
    pem.write_bytes(whole[: len(whole) // 2])
    wait_until(lambda: "keeps its old keys" in broker.log)
    pem.write_bytes(whole)
    wait_until(lambda: _serial(broker, authority) != before)


def test_new_keys_by_alter_configs(running: tuple[Authority, Path, Broker]) -> None:
    authority, pem, broker = running
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **properties(authority)})
    name = "listener.name.ssl.ssl.keystore.location"

    def alter(path: Path) -> None:
        entry = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(20)

    before = _serial(broker, authority)
    other = authority.issue("broker", file="other.pem", days=20)
    alter(other)
    assert _serial(broker, authority) != before
    with pytest.raises(Exception, match="DistinguishedName does not match"):
        alter(authority.issue("impostor"))
    with pytest.raises(Exception, match="no such file"):
        alter(pem.parent / "nothing.pem")
    # The same name with other content counts as a change.
    again = _serial(broker, authority)
    _replace(other, authority.issue("broker", file="third.pem", days=20))
    alter(other)
    assert _serial(broker, authority) != again


# ---------------------------------------------------------------------- hostile clients


def test_handshakes_that_stall_hold_up_nobody(authority: Authority) -> None:
    more: dict[str, Any] = {"millstream__metrics__listener": "127.0.0.1:0"}
    with Broker(settings(authority.issue("broker"), **more)) as broker:
        stalled = [socket.create_connection((broker.host, broker.port)) for _ in range(300)]
        for number, sock in enumerate(stalled):
            if number % 3 == 1:
                sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # a ClientHello that does not go on
            elif number % 3 == 2:
                sock.sendall(b"\x16")
        for _ in range(5):
            topics(broker, properties(authority))
        for sock in stalled:
            sock.close()
        topics(broker, properties(authority))
        assert "Traceback" not in broker.log


def test_half_open_connections_count(authority: Authority) -> None:
    with Broker(settings(authority.issue("broker"), max__connections=20)) as broker:
        stalled = [socket.create_connection((broker.host, broker.port)) for _ in range(20)]
        wait_until(lambda: _refused(broker))
        assert "max.connections=20 reached" in broker.log
        for sock in stalled:
            sock.close()
        wait_until(lambda: not _refused(broker))
        topics(broker, properties(authority))


def _refused(broker: Broker) -> bool:
    with socket.create_connection((broker.host, broker.port)) as sock:
        sock.settimeout(0.3)
        try:
            return sock.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        b"\0\0\0\x10\0\x12\0\0\0\0\0\1\xff\xff",
        b"\x16\x03\x01\xff\xff" * 9,
    ],
)
def test_bytes_that_are_no_tls(authority: Authority, garbage: bytes) -> None:
    with Broker(settings(authority.issue("broker"))) as broker:
        with socket.create_connection((broker.host, broker.port)) as sock:
            sock.sendall(garbage)
            sock.settimeout(20)
            try:
                while sock.recv(100):
                    pass
            except ConnectionError:
                pass
        wait_until(lambda: "TLS handshake failed" in broker.log)
        topics(broker, properties(authority))
        assert "Traceback" not in broker.log


def test_a_client_that_leaves_in_the_middle(authority: Authority) -> None:
    with Broker(settings(authority.issue("broker"))) as broker:
        context = ssl.create_default_context(cafile=str(authority.pem))
        for _ in range(20):
            with socket.create_connection((broker.host, broker.port)) as sock:
                tls = context.wrap_socket(sock, server_hostname="127.0.0.1")
                tls.sendall(b"\0\0\1\0half a frame")
                os.close(tls.detach())  # without a goodbye
        topics(broker, properties(authority))
        assert "Traceback" not in broker.log


def test_many_connect_at_once(authority: Authority) -> None:
    with Broker(settings(authority.issue("broker"))) as broker:
        failures: list[Exception] = []

        def connect() -> None:
            try:
                topics(broker, properties(authority))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=connect) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


def test_a_plain_broker_loads_nothing_of_this() -> None:
    code = (
        "import sys, millstream.broker.server; "
        "print([name for name in sys.modules if name.startswith('millstream.broker.security')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
